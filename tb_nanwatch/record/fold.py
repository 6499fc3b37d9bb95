"""What several replicas measured of one tensor becomes one number, and the replica that is to blame.

Replicas split a batch, so that their activations and gradients are parts of one tensor: squares are added. Losses
are added too: replicas divide theirs by the number of replicas, since the optimizer adds their gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.stats.measures import MAX_ABS, MEAN, NAN, NEG_INF, NORM, POS_INF, SIZE, SUBNORMAL, ZERO


@dataclass(frozen=True)
class Parts:
    """Numbers measured in replicas, and the tensors that they are of.

    ids: the tensors, each once; owner int64[e]: of each number, the place of its tensor in `ids`; replica int64[e]:
    where it was measured, -1 for what no replica owns.
    """

    ids: tuple[int, ...]
    owner: NDArray[np.int64]
    replica: NDArray[np.int64]

    @classmethod
    def of(cls, ids: Sequence[int], replicas: Sequence[int] | None = None) -> Parts:
        """From the tensor of every number, and the replica if there are any."""
        distinct = tuple(dict.fromkeys(ids))
        place = {tensor: n for n, tensor in enumerate(distinct)}
        where = [-1] * len(ids) if replicas is None else replicas
        return cls(distinct, np.array([place[i] for i in ids], np.int64), np.array(where, np.int64))

    @property
    def whole(self) -> bool:
        """Whether every number is a tensor of its own."""
        return len(self.ids) == len(self.owner) and bool((self.replica < 0).all())

    def numbers_of(self, tensors: Sequence[int]) -> frozenset[int]:
        """Places of the numbers that belong to these places in `ids`."""
        return frozenset(np.flatnonzero(np.isin(self.owner, tensors)).tolist())

    def total(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """float64[ids]: sums over replicas of float64[e]; one that is not finite stays so."""
        with np.errstate(all="ignore"):
            return np.bincount(self.owner, numbers, len(self.ids)).astype(np.float64)

    def culprits(self, numbers: NDArray[np.float64]) -> dict[int, int]:
        """Tensor to the first replica in which it is not finite; none for those bad in all of several replicas."""
        bad = ~np.isfinite(numbers)
        found: dict[int, int] = {}
        for tensor in np.unique(self.owner[bad]):
            mine = self.owner == tensor
            if mine.sum() == 1 or not bad[mine].all():
                found[self.ids[tensor]] = int(self.replica[mine & bad].min())
        return found

    def statistics(self, stats: NDArray[np.float64]) -> NDArray[np.float64]:
        """float64[ids, COLUMNS] from float64[e, COLUMNS]."""
        folded = np.zeros((len(self.ids), stats.shape[1]))
        largest = np.zeros(len(self.ids))
        np.maximum.at(largest, self.owner, stats[:, NORM])
        scaled = stats[:, NORM] / np.where(largest > 0, largest, 1)[self.owner]  # squares of norms may overflow
        folded[:, NORM] = largest * np.sqrt(self.total(scaled**2))
        np.maximum.at(folded[:, MAX_ABS], self.owner, stats[:, MAX_ABS])
        for column in (NAN, POS_INF, NEG_INF, SIZE):
            folded[:, column] = self.total(stats[:, column])
        finite = stats[:, SIZE] - stats[:, [NAN, POS_INF, NEG_INF]].sum(axis=1)
        folded[:, MEAN] = self.total(stats[:, MEAN] * finite) / np.maximum(self.total(finite), 1)
        for column in (ZERO, SUBNORMAL):
            folded[:, column] = self.total(stats[:, column] * stats[:, SIZE]) / np.maximum(folded[:, SIZE], 1)
        return folded
