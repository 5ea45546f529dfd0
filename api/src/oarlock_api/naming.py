"""How a snake_case attribute is spelled in a manifest.

Kubernetes writes camelCase and keeps the acronyms GPU and UUID in capitals unless they come first
(`gpuSeconds`, `wastedGPUSeconds`); `Uid` is the one that it writes as a word (`podUid`).
"""

_ACRONYMS = {"gpu": "GPU", "uuid": "UUID"}


def camel_case(name: str) -> str:
    """`wasted_gpu_seconds` -> `wastedGPUSeconds`."""
    first, *rest = name.split("_")
    return first + "".join(_ACRONYMS.get(word, word.capitalize()) for word in rest)
