"""A shuffled order of any length without storing it: entry i of a pass is computed, in time that no length changes.

A Feistel network over the bits of the index is a bijection whatever its round function (Luby and Rackoff, 1988); one
that leads out of the range is applied again until it leads back into it (cycle walking: Black and Rogaway, 2002). On a
few bits a network reaches some orders more often than others, so short passes are sorted by random numbers instead.
"""

from __future__ import annotations

import hashlib

import numpy as np

_ROUNDS = 6
"""Four are enough against an adversary who sees the outcome; chi-square tests of the outcome see nothing with six."""

_SHORT = 1024
"""Passes up to this length are sorted: at most so much needless work per step, and quicker than the network."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""2^64 / golden ratio, odd: spreads consecutive numbers over all bits."""


def round_keys(*parts: int) -> np.ndarray:
    """(rounds,) uint64 that belong to these numbers."""
    text = ",".join(str(part) for part in parts)
    return np.frombuffer(hashlib.blake2b(text.encode(), digest_size=8 * _ROUNDS).digest(), dtype="<u8").astype(
        np.uint64
    )


def shuffled(entries: np.ndarray, passes: np.ndarray, *, length: int, keys: np.ndarray) -> np.ndarray:
    """(n,) int64: what stands at each entry of its pass, for (n,) entries in [0, length) and (n,) numbers of passes.

    Over one pass this is a permutation of range(length); passes with other numbers are other permutations.
    """
    if length <= _SHORT:
        return _sorted(entries, passes, length, keys)
    bits = (length - 1).bit_length()
    values, turns = entries.astype(np.uint64), passes.astype(np.uint64)
    values = _network(values, turns, bits, keys)
    while len(outside := np.flatnonzero(values >= np.uint64(length))):
        values[outside] = _network(values[outside], turns[outside], bits, keys)
    return values.astype(np.int64)


def _sorted(entries: np.ndarray, passes: np.ndarray, length: int, keys: np.ndarray) -> np.ndarray:
    """The order of random numbers, one for each place of each pass."""
    turns, mine = np.unique(passes, return_inverse=True)
    with np.errstate(over="ignore"):
        salts = _mixed(turns.astype(np.uint64) * _GOLDEN + keys[0])
        draws = _mixed(salts[:, None] + np.arange(1, length + 1, dtype=np.uint64) * _GOLDEN)
    found: np.ndarray = np.argsort(draws, axis=1, kind="stable")[mine, entries]
    return found


def _network(values: np.ndarray, turns: np.ndarray, bits: int, keys: np.ndarray) -> np.ndarray:
    """One application of the network to numbers of `bits` bits, which it permutes."""
    low_bits = np.uint64(bits // 2)
    low_mask, high_mask = (np.uint64((1 << width) - 1) for width in (bits // 2, bits - bits // 2))
    low, high = values & low_mask, values >> low_bits
    for number, key in enumerate(keys):
        with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is what is wanted
            salt = _mixed(turns * _GOLDEN + key)
            if number % 2:
                high = high ^ (_mixed(low + salt) & high_mask)
            else:
                low = low ^ (_mixed(high + salt) & low_mask)
    return (high << low_bits) | low


def _mixed(values: np.ndarray) -> np.ndarray:
    """Every bit of a number influences every bit of the result: the finalizer of MurmurHash3."""
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    mixed: np.ndarray = values ^ (values >> np.uint64(33))
    return mixed
