# SPDX-License-Identifier: Apache-2.0
"""The zip files that .pt files are: records that are stored, not compressed, each at a multiple of
64 bytes, so that a map of the file can serve as their memory.

zipfile finds the records of a file. Where one lies, how long it is and its checksum are checked
here, before anything is allocated for it; all together are no longer than the file."""
from __future__ import annotations

import mmap
import os
import struct
import zipfile
import zlib

from phlox import _C

ALIGNMENT = 64
_PIECE = 1 << 20  # bytes that are read or written at a time: signals are seen in between
_LOCAL_HEADER = 30  # bytes of a record's header before its name
_ADVICE = (" This is an internal miniz error. If you are seeing this error, there is a high "
           "likelihood that your checkpoint file is corrupted. This can happen if the checkpoint "
           "was not saved properly, was transferred incorrectly, or the file was modified after "
           "saving.")


class Reader:
    """The records of an open file, by their names below its one folder."""

    def __init__(self, file):
        self.file = file
        file.seek(0, os.SEEK_END)
        self.size = file.tell()
        self.left = self.size  # bytes that storages may still take
        try:
            archive = zipfile.ZipFile(file)
            records, self.directory = archive.infolist(), archive.start_dir
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, EOFError,
                struct.error):
            raise RuntimeError("PytorchStreamReader failed reading zip archive: failed finding "
                               "central directory." + _ADVICE) from None
        self.prefix = records[0].filename.partition("/")[0] + "/" if records else ""
        self.records = {record.filename[len(self.prefix):]: record for record in records
                        if record.filename.startswith(self.prefix)}

    def place(self, name):
        """Where a record's bytes begin, and their number."""
        record = self.records.get(name)
        if record is None:
            raise RuntimeError(f"PytorchStreamReader failed locating file {name}: file not found."
                               + _ADVICE)
        if record.compress_type != zipfile.ZIP_STORED or record.flag_bits & 1:
            raise RuntimeError(f"PytorchStreamReader failed reading file {name}: it is compressed "
                               "or encrypted, which files of torch.save are not")
        self.file.seek(record.header_offset)
        header = self.file.read(_LOCAL_HEADER)
        if len(header) < _LOCAL_HEADER or header[:4] != b"PK\3\4":
            raise RuntimeError(f"PytorchStreamReader failed reading file {name}: invalid header or "
                               "archive is corrupted." + _ADVICE)
        begin = record.header_offset + _LOCAL_HEADER + sum(struct.unpack("<HH", header[26:]))
        if record.file_size != record.compress_size or begin + record.file_size > self.size:
            raise RuntimeError(f"PytorchStreamReader failed reading file {name}: file read failed."
                               + _ADVICE)
        return begin, record.file_size

    def fill(self, name, begin, room):
        """Reads a record, which begins there, into memory of its size."""
        self.file.seek(begin)
        room, done, check = memoryview(room), 0, 0
        while done < len(room):
            got = self.into(room[done:done + _PIECE])
            if not got:
                raise RuntimeError(f"PytorchStreamReader failed reading file {name}: file read "
                                   "failed." + _ADVICE)
            check = zlib.crc32(room[done:done + got], check)
            done += got
        if self.records[name].CRC not in (0, check):  # 0: it was not computed
            raise RuntimeError(f"PytorchStreamReader failed reading file {name}: CRC-32 check "
                               "failed." + _ADVICE)

    def into(self, room):
        if hasattr(self.file, "readinto"):
            return self.file.readinto(room)
        data = self.file.read(min(len(room), _PIECE))
        room[:len(data)] = data
        return len(data)

    def read(self, name):
        begin, size = self.place(name)
        room = bytearray(size)
        self.fill(name, begin, room)
        return bytes(room)

    def claim(self, name, size):
        """Where the bytes of a storage begin. They are counted: records that overlap would let a
        small file take much memory."""
        begin, held = self.place(name)
        if held != size:
            raise RuntimeError(f"record size ({held} bytes) does not match expected size ({size} "
                               "bytes)")
        self.left -= size
        if self.left < 0:
            raise RuntimeError("the file's storages overlap: together they are larger than the "
                               "file")
        return begin

    def map(self, shared):
        """A map of the file. Unless it is shared, what is written to it stays in memory."""
        if not shared:
            return mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_COPY)
        with open(self.file.name, "r+b") as file:
            made = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE)
        at = self.directory
        while made[at:at + 4] == b"PK\1\2":  # what is written makes checksums wrong: there are none
            made[at + 16:at + 20] = bytes(4)
            at += 46 + sum(struct.unpack("<HHH", made[at + 28:at + 34]))
        return made


class Writer:
    """Writes records one after the other to what has `write`, and then the list of them."""

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
