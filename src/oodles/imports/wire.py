"""Protocol buffers as they lie on the disk: fields of a message, without the library or the schema.

Event files of TensorBoard and run files of wandb are read with it, so that neither has to be installed.
"""

from __future__ import annotations

import struct
from functools import cache
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
CHUNK = 256  # bytes of a long piece that are summed side by side
LONG = 4 * CHUNK


def crc32c(pieces: list[bytes]) -> Any:
    """CRC-32C (Castagnoli) of many pieces at once, as an array; masked as TensorFlow's records and LevelDB's have it.

    >>> hex(crc32c([b"123456789"])[0])  # the check value e3069283, turned and shifted
    '0xc78ab0e5'
    """
    lengths = np.array([len(piece) for piece in pieces])
    found = np.zeros(len(pieces), dtype=np.uint32)
    for length in np.unique(lengths[lengths <= LONG]):
        own = np.flatnonzero(lengths == length)
        rows = np.frombuffer(b"".join(pieces[i] for i in own), dtype=np.uint8).reshape(len(own), length)
        found[own] = _registers(np.full(len(own), 0xFFFFFFFF, dtype=np.uint32), rows)
    for place in np.flatnonzero(lengths > LONG):
        found[place] = _long_register(pieces[place])
    found ^= np.uint32(0xFFFFFFFF)
    return ((found >> np.uint32(15)) | (found << np.uint32(17))) + np.uint32(0xA282EAD8)


def _registers(crc: Any, rows: Any) -> Any:
    """The register of the sum after a row of bytes each."""
    for column in np.ascontiguousarray(rows.T):
        crc = CRC_TABLE[(crc ^ column) & 0xFF] ^ (crc >> np.uint32(8))
    return crc


def _long_register(piece: bytes) -> int:
    """The same for one long piece, such as an image: its chunks side by side, then one after the other.

    The register is linear: after a chunk it is what zeros in its place would make of it, xor the chunk's own.
    """
    count = len(piece) // CHUNK
    rows = np.frombuffer(piece, dtype=np.uint8, count=count * CHUNK).reshape(count, CHUNK)
    a, b, c, d = _after_zeros()
    register = 0xFFFFFFFF
    for own in _registers(np.zeros(count, dtype=np.uint32), rows).tolist():
        register = a[register & 255] ^ b[register >> 8 & 255] ^ c[register >> 16 & 255] ^ d[register >> 24] ^ own
    rest = np.frombuffer(piece, dtype=np.uint8, offset=count * CHUNK).reshape(1, -1)
    return int(_registers(np.array([register], dtype=np.uint32), rest)[0])


@cache
def _after_zeros() -> list[list[int]]:
    """What a chunk of zeros makes of each byte of a register."""
    starts = np.arange(256, dtype=np.uint32)[None, :] << np.array([[0], [8], [16], [24]], dtype=np.uint32)
    zeros = np.zeros((starts.size, CHUNK), dtype=np.uint8)
    found: list[list[int]] = _registers(starts.ravel(), zeros).reshape(starts.shape).tolist()
    return found
