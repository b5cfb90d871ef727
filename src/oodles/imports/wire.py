"""Protocol buffers as they lie on the disk: fields of a message, without the library or the schema.

Event files of TensorBoard and run files of wandb are read with it, so that neither has to be installed.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

VARINT, DOUBLE, BYTES, FLOAT = 0, 1, 2, 5  # kinds of fields


def fields(data: bytes) -> list[tuple[int, Any]]:
    """Every field of a message: its number, and an int, or the bytes of it; ValueError where it is none."""
    found: list[tuple[int, Any]] = []
    place, end = 0, len(data)
    while place < end:
        tag = data[place]
        place += 1
        if tag >= 0x80:  # most numbers are one byte, and a call is slow
            tag, place = _varint(data, place - 1)
        kind = tag & 7
        if kind in (DOUBLE, FLOAT):
            size = 8 if kind == DOUBLE else 4
        elif kind in (BYTES, VARINT):
            if place >= end:
                raise ValueError("a number that does not end")
            size = data[place]
            place += 1
            if size >= 0x80:
                size, place = _varint(data, place - 1)
            if kind == VARINT:
                found.append((tag >> 3, size))
                continue
        else:
            raise ValueError("a field of an unknown kind")
        if place + size > end:
            raise ValueError("a field goes beyond its message")
        found.append((tag >> 3, data[place : place + size]))
        place += size
    return found


def signed(value: int) -> int:
    """A 64-bit whole number that may be negative."""
    return value - (1 << 64) if value >= 1 << 63 else value


def as_float(data: bytes) -> float:
    """A field of 4 or 8 bytes as a number."""
    if len(data) not in (4, 8):
        raise ValueError("a number of a strange size")
    return float(struct.unpack("<f" if len(data) == 4 else "<d", data)[0])


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if place >= len(data) or shift > 63:
            raise ValueError("a number that does not end")
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, place
        shift += 7


def _crc_table() -> Any:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)
    return table


CRC_TABLE = _crc_table()


def crc32c(pieces: list[bytes]) -> Any:
    """CRC-32C (Castagnoli) of many pieces at once, as an array; masked as TensorFlow's records and LevelDB's have it.

    >>> hex(crc32c([b"123456789"])[0])  # the check value e3069283, turned and shifted
    '0xc78ab0e5'
    """
    lengths = np.array([len(piece) for piece in pieces])
    found = np.zeros(len(pieces), dtype=np.uint32)
    for length in np.unique(lengths):
        own = np.flatnonzero(lengths == length)
        rows = np.frombuffer(b"".join(pieces[i] for i in own), dtype=np.uint8).reshape(len(own), length)
        crc = np.full(len(own), 0xFFFFFFFF, dtype=np.uint32)
        for column in np.ascontiguousarray(rows.T):
            crc = CRC_TABLE[(crc ^ column) & 0xFF] ^ (crc >> np.uint32(8))
        found[own] = crc ^ np.uint32(0xFFFFFFFF)
    return ((found >> np.uint32(15)) | (found << np.uint32(17))) + np.uint32(0xA282EAD8)
