# SPDX-License-Identifier: Apache-2.0
"""The zip container of .pt files. Records are stored uncompressed and aligned to 64 bytes, so a
memory map of the file can back storages.

zipfile lists the records. This module checks each record's offset, size and checksum before any
allocation. The total size of all records is limited to the size of the file."""
from __future__ import annotations

import errno
import mmap
import os
import struct
import zipfile
import zlib

from phlox import _C

ALIGNMENT = 64
_PIECE = 1 << 20  # bytes per read or write; signals are handled between pieces
_LOCAL_HEADER = 30  # bytes of a record's local header before its name
_CORRUPT = (" This is an internal miniz error. If you are seeing this error, there is a high "
           "likelihood that your checkpoint file is corrupted. This can happen if the checkpoint "
           "was not saved properly, was transferred incorrectly, or the file was modified after "
           "saving.")


class Reader:
    """The records of an open file, by their names inside the archive's one folder."""

    def __init__(self, file):
        self.file = file
        file.seek(0, os.SEEK_END)
        self.size = file.tell()
        self.left = self.size  # bytes still available to storages
        try:
            archive = zipfile.ZipFile(file)
            records, self.directory = archive.infolist(), archive.start_dir
            self.count = len(records)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, EOFError,
                struct.error, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.EINVAL:
                raise  # of the file itself; EINVAL is an offset before its start
            raise RuntimeError("PytorchStreamReader failed reading zip archive: failed finding "
                               "central directory." + _CORRUPT) from None
        self.prefix = records[0].filename.partition("/")[0] + "/" if records else ""
        self.records = {record.filename[len(self.prefix):]: record for record in records
                        if record.filename.startswith(self.prefix)}

    def locate(self, name):
        """Returns (offset, size in bytes) of a record's data."""
        record = self.records.get(name)
        if record is None:
            raise RuntimeError(f"PytorchStreamReader failed locating file {name}: file not found."
                               + _CORRUPT)
        if record.compress_type != zipfile.ZIP_STORED or record.flag_bits & 1:
            raise RuntimeError(f"PytorchStreamReader failed reading file {name}: it is compressed "
                               "or encrypted, which files of torch.save are not")
        header = b""
        if 0 <= record.header_offset <= self.size - _LOCAL_HEADER:
            self.file.seek(record.header_offset)
            header = self.file.read(_LOCAL_HEADER)
        if len(header) < _LOCAL_HEADER or header[:4] != b"PK\3\4":
            raise RuntimeError(f"PytorchStreamReader failed reading file {name}: invalid header or "
                               "archive is corrupted." + _CORRUPT)
        begin = record.header_offset + _LOCAL_HEADER + sum(struct.unpack("<HH", header[26:]))
        if record.file_size != record.compress_size or begin + record.file_size > self.size:
            raise RuntimeError(f"PytorchStreamReader failed reading file {name}: file read failed."
                               + _CORRUPT)
        return begin, record.file_size

    def fill(self, name, begin, buffer):
        """Reads the record at offset `begin` into `buffer`, a buffer of the record's size."""
        self.file.seek(begin)
        buffer, done, check = memoryview(buffer), 0, 0
        while done < len(buffer):
            got = self._readinto(buffer[done:done + _PIECE])
            if not got:
                raise RuntimeError(f"PytorchStreamReader failed reading file {name}: file read "
                                   "failed." + _CORRUPT)
            check = zlib.crc32(buffer[done:done + got], check)
            done += got
        if self.records[name].CRC not in (0, check):  # 0: no checksum was computed
            raise RuntimeError(f"PytorchStreamReader failed reading file {name}: CRC-32 check "
                               "failed." + _CORRUPT)

    def _readinto(self, buffer):
        """Reads at most len(buffer) bytes into `buffer` and returns their number."""
        if hasattr(self.file, "readinto"):
            return self.file.readinto(buffer)
        data = self.file.read(min(len(buffer), _PIECE))
        buffer[:len(data)] = data
        return len(data)

    def read(self, name):
        begin, size = self.locate(name)
        buffer = bytearray(size)
        self.fill(name, begin, buffer)
        return bytes(buffer)

    def claim(self, name, size):
        """Returns the offset of a storage's data and counts its size. The sum is limited to the
        size of the file, because overlapping records would let a small file allocate much
        memory."""
        begin, length = self.locate(name)
        if length != size:
            raise RuntimeError(f"record size ({length} bytes) does not match expected size ({size} "
                               "bytes)")
        self.left -= size
        if self.left < 0:
            raise RuntimeError("the file's storages overlap: together they are larger than the "
                               "file")
        return begin

    def map(self, shared):
        """Maps the file. A shared map writes changes to the file; a private map keeps them in
        memory."""
        if not shared:
            return mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_COPY)
        with open(self.file.name, "r+b") as file:
            made = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE)
        at = self.directory
        for _ in range(self.count):  # writes invalidate the checksums: 0 means none
            made[at + 16:at + 20] = bytes(4)
            at += 46 + sum(struct.unpack("<HHH", made[at + 28:at + 34]))
        return made


class Writer:
    """Writes records to `sink`, any object with `write`, followed by the central directory."""

    def __init__(self, sink, folder):
        self.sink, self.folder, self.at, self.entries = sink, folder, 0, []

    def write(self, data):
        self.sink.write(data)
        self.at += len(data)

    def record(self, name, data, checked=True):
        data = memoryview(data)
        pieces = [data[at:at + _PIECE] for at in range(0, len(data), _PIECE)]
        check = 0
        for piece in pieces if checked else ():
            check = zlib.crc32(piece, check)
        header, entry = _C._zip_record(f"{self.folder}/{name}", self.at, data.nbytes, check,
                                       ALIGNMENT)
        for piece in (header, *pieces):
            self.write(piece)
        self.entries.append(entry)

    def close(self):
        begin, entries = self.at, b"".join(self.entries)
        self.write(entries)
        self.write(_C._zip_end(len(self.entries), begin, len(entries)))
