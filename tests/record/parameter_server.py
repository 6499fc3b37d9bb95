"""A program of its own: a ParameterServerStrategy job within one process, plain and watched. Prints JSON.

`python parameter_server.py FOLDER`
"""

from __future__ import annotations

import json
import os
import socket
import sys
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import tb_nanwatch as nanwatch


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def main(folder: str) -> None:
    cluster = {"worker": [f"127.0.0.1:{free_port()}"], "ps": [f"127.0.0.1:{free_port()}"]}
    spec = tf.train.ClusterSpec(cluster)
    servers = [tf.distribute.Server(spec, job_name=job, task_index=0, protocol="grpc", start=True) for job in cluster]
    strategy = tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")
    )
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weight = tf.Variable(tf.ones([3]))

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(weight * x))
        weight.assign_sub(0.01 * tape.gradient(loss, weight))
        return loss

    def train(step: object) -> list[float]:
        weight.assign(tf.ones([3]))
        losses = [coordinator.schedule(step, args=(tf.constant([1.0, 2.0, float(n)]),)) for n in range(4)]
        coordinator.join()
        return [float(loss.fetch()) for loss in losses] + np.asarray(weight.read_value()).tolist()

    plain = train(step)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        watched = nanwatch.watch(step, folder, variables=[weight])
        result = train(watched)
        watched.close()
    ours = [str(w.message) for w in caught if "tb_nanwatch" in str(w.message)]
    print(json.dumps({"plain": plain, "watched": result, "warnings": ours}), flush=True)
    del servers
    os._exit(0)  # servers within a process never end by themselves


if __name__ == "__main__":
    main(sys.argv[1])
