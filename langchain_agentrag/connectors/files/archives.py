"""Guards against files that unpack to far more than they weigh."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib

from langchain_agentrag.errors import UnreadableSourceError

_UNPACKED = 500 * 2**20
"""Most bytes an Office file may unpack to; ordinary ones stay below a tenth of it."""
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def check_zip(data: bytes) -> None:
    """Look at a zip-based Office file before a library unpacks it.

    Raises:
        UnreadableSourceError: it is encrypted, no zip file, or unpacks to too much.
    """
    if data.startswith(_OLE):
        msg = "encrypted, or an old binary Office file: save it without password as .docx, .xlsx or .pptx"
        raise UnreadableSourceError(msg)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
    except zipfile.BadZipFile as error:
        msg = f"damaged file: {error}"
        raise UnreadableSourceError(msg) from error
    if unpacked > _UNPACKED:
        msg = f"unpacks to {unpacked:,} bytes, more than the {_UNPACKED:,} allowed for an Office file"
        raise UnreadableSourceError(msg)


def gunzip(data: bytes, limit: int) -> bytes:
    """The unpacked bytes of a .gz file.

    Raises:
        UnreadableSourceError: it is damaged or unpacks to more than `limit` bytes.
    """
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            unpacked = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        msg = f"damaged gzip file: {error}"
        raise UnreadableSourceError(msg) from error
    if len(unpacked) > limit:
        msg = f"unpacks to more than max_bytes={limit:,} bytes: raise max_bytes to index it"
        raise UnreadableSourceError(msg)
    return unpacked
