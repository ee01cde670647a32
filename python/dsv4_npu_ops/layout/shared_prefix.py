"""What a call of ``KVAllocator.share_prefix`` did (docs/spec.md, shared prefixes)."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class SharedPrefix:
    """Where requests start, and what the engine has to copy before their first step.

    Attributes:
        starts: raw tokens that each target has, in call order, at most the prefix that was asked for.
        copies: for each pool that exists, ``(source_pages, destination_pages)``, int32 ``[n]`` each on the tables'
            device: page ids. The engine copies the whole content of each source page to its destination, in every
            tensor of that pool, in stream order before the source's next step.

    Source: docs/spec.md, shared prefixes.
    """

    starts: list[int]
    copies: dict[str, tuple[Tensor, Tensor]]
