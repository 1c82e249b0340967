# SPDX-License-Identifier: Apache-2.0
"""Numbers that trainers make their state of, as the contract says them: splitmix64's finaliser, and FNV-1a of a text."""
M64 = (1 << 64) - 1
GOLD = 0x9E3779B97F4A7C15


def mix(x):
    x = (x + GOLD) & M64
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & M64
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & M64
    return x ^ x >> 31


def fnv(text):
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = (h ^ byte) * 0x100000001B3 & M64
    return h
