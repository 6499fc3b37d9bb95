"""What can be read of a TensorFlow 1 graph before a step, so that the step is the same afterwards."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from tb_nanwatch.record.applied.remedy import Feeds, GraphLoop, NotApplicable
from tb_nanwatch.record.graph import walk

_STATE: Final = ("VarHandleOp", "ReadVariableOp", "Variable", "VariableV2", "VarIsInitializedOp", "VariableShape")


def read(loop: GraphLoop, tensors: Collection[Any], feeds: Feeds, what: str) -> list[Any]:
    """Values that these tensors will have in the step. Raises NotApplicable where computing them twice would matter."""
    for op in walk.executed([t.op for t in tensors], feeds):
        if (op.op_def.is_stateful and op.type not in _STATE) or walk.written(op):
            raise NotApplicable(
                f"{what} cannot be computed ahead of a step in this graph, since {op.type} ({op.name}) is run for it"
            )
    for tensor in tensors:
        if not loop.graph.is_feedable(tensor):
            raise NotApplicable(f"the graph does not let {tensor.name} be fed")
        if tensor.name in feeds and not loop.may_feed_again:
            raise NotApplicable(f"{tensor.name} is fed by the program, which a hook cannot change; use watch_session")
    return list(loop.run(list(tensors), dict(feeds.values())))
