"""What a recorder knows of the tensors of its run: each registered once, with its place in forward order."""

from __future__ import annotations

from typing import Final

from tb_nanwatch.format.records import TensorInfo

ORDER_STRIDE: Final = 1000  # room for the tensors of a layer between two places in forward order


class Tensors:
    """Infos by id and by name. `layer_order` says which layer is called when; fill it before the first registration."""

    def __init__(self) -> None:
        self.by_id: dict[int, TensorInfo] = {}
        self.layer_order: dict[str, int] = {}
        self._by_name: dict[tuple[str, str], TensorInfo] = {}
        self._declared = 0

    def register(
        self,
        kind: str,
        name: str,
        layer: str,
        layer_class: str,
        dtype: str,
        shape: tuple[int, ...] | None,
        number: int,
        trainable: bool = False,
        activation: str = "",
    ) -> TensorInfo:
        """The info of a tensor, made at the first call; `number` orders those of one layer."""
        key = (kind, name)
        if key not in self._by_name:
            order = self._place(layer) * ORDER_STRIDE + number % ORDER_STRIDE
            new = len(self._by_name) + 1
            info = TensorInfo(new, kind, name, layer, layer_class, dtype, shape, order, trainable, activation)
            self._by_name[key] = self.by_id[info.id] = info
        return self._by_name[key]

    def undeclared(self) -> list[TensorInfo]:
        """Those registered since the last call."""
        infos = list(self._by_name.values())
        new, self._declared = infos[self._declared :], len(infos)
        return new

    def _place(self, layer: str) -> int:
        """Place of a layer in forward order: its own call, or that of the layer that it is part of."""
        path = layer.partition(":")[0]
        while path:
            if path in self.layer_order:
                return self.layer_order[path] + 1
            path = path.rpartition("/")[0]
        inside = [n for p, n in self.layer_order.items() if layer and p.startswith(layer + "/")]
        return max(inside) + 1 if inside else (len(self.layer_order) + 1 if layer else 0)
