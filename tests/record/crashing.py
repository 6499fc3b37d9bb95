"""Trains in forked children and kills each at a random moment; run by test_crash.py in a process of its own.

    python crashing.py FOLDER KILLS SEED

TensorFlow is imported once and starts in each child. A child's output goes to FOLDER/N.txt, its run to FOLDER/N.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import tensorflow as tf

import tb_nanwatch as nanwatch

EVERY = 25  # steps between two bad batches: more than the ten finite steps that end an incident
PATIENCE = 60.0  # seconds for a child to announce its first incident


def train(logdir: str) -> None:
    weight = tf.Variable(tf.ones([8, 4]), name="weight")

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(x @ weight))
        gradient = tape.gradient(loss, weight)
        weight.assign_sub(0.01 * tf.where(tf.math.is_finite(gradient), gradient, 0.0))
        return loss

    watched = nanwatch.watch(step, logdir, variables=[weight], replay=False)
    for number in range(10**9):
        bad = number % EVERY == EVERY - 1
        watched(tf.fill([2, 8], float("nan") if bad else 1.0))


def main() -> None:
    folder, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    moments = random.Random(seed)
    for number in range(kills):
        said = folder / f"{number}.txt"
        child = os.fork()
        if child == 0:
            os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), sys.stdout.fileno())
            train(str(folder / str(number)))
        wait = time.monotonic() + PATIENCE
        while "not finite" not in (said.read_text() if said.exists() else "") and time.monotonic() < wait:
            os.sched_yield()
        moment = time.monotonic() + moments.random() * 0.4
        while time.monotonic() < moment:
            os.sched_yield()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
