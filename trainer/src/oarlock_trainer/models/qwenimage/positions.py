"""Rotary positions of Qwen-Image's tokens, in real numbers.

Rows and columns are counted from the middle of the picture, so that a larger one adds places on all sides. Text follows
behind the longest side's last place, the same on all three axes: frames, rows, columns. A picture is the first frame, one
that stands behind it the second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_PLACES = 4096
"""On either side of the middle: diffusers' own bound of text and sides together."""


class Positions:
    """Takes the place of the forward pass of the model's `pos_embed`, whose own tables are complex numbers.

    The angles are computed once, on the CPU, as diffusers computes them, and copied to each device once: what a call does
    then waits for nothing.
    """

    def __init__(self, axes: Sequence[int], theta: float) -> None:
        """`axes`: how many of a head's channels tell the place on each axis."""
        places = torch.arange(-_PLACES, _PLACES, device="cpu")
        channels = (torch.arange(0, width, 2, device="cpu").to(torch.float32).div(width) for width in axes)
        angles = torch.cat([torch.outer(places, 1.0 / torch.pow(theta, share)) for share in channels], dim=1)
        self._tables = {torch.device("cpu"): torch.view_as_real(torch.polar(torch.ones_like(angles), angles))}
        self._pairs = [width // 2 for width in axes]

    def __call__(
        self,
        video_fhw: Sequence[Sequence[Sequence[int]]],
        device: torch.device | None = None,
        max_txt_seq_len: int | None = None,
    ) -> Tensor:
        """Cosine and sine of each token, the text's first: (T + N, D/2, 2) float32 on the device.

        The arguments are diffusers': a list for each sample, which has the sizes (1, rows, columns) of its pictures, the same
        for all, and T. Raises ValueError where a picture has several frames.
        """
        pictures = video_fhw[0]
        if not pictures or any(frames != 1 for frames, _, _ in pictures) or not max_txt_seq_len:
            raise ValueError("img_shapes: each sample is pictures of one frame here, with a text")
        table = self._table(device or torch.device("cpu"))
        behind = _PLACES + max(side // 2 for _, *sides in pictures for side in sides)
        images = [self._picture(table, place, *sides) for place, (_, *sides) in enumerate(pictures)]
        return torch.cat([table[behind : behind + max_txt_seq_len], *images])

    def _picture(self, table: Tensor, place: int, rows: int, columns: int) -> Tensor:
        """(rows x columns, D/2, 2), of the frame at this place."""
        frame, row, column = table.split_with_sizes(self._pairs, dim=1)
        each = [
            frame[_PLACES + place].expand(rows, columns, -1, -1),
            row[_centred(rows)][:, None].expand(-1, columns, -1, -1),
            column[_centred(columns)][None].expand(rows, -1, -1, -1),
        ]
        return torch.cat(each, dim=2).flatten(0, 1)

    def _table(self, device: torch.device) -> Tensor:
        """(2 x 4096, D/2, 2): from the place -4096 on."""
        if device not in self._tables:
            self._tables[device] = self._tables[torch.device("cpu")].to(device)
        return self._tables[device]


def _centred(side: int) -> slice:
    """Of an odd side the larger half lies before the middle."""
    return slice(_PLACES - (side - side // 2), _PLACES + side // 2)
