"""Files of Chroma's HNSW indexes: damage, unused space, vectors of deleted elements.

hnswlib marks deleted elements and never overwrites them, and Chroma writes a new index with whatever was in memory in
its unused space. So both are overwritten here, in the files of an index that no client is writing.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from langchain_agentrag.store.protocols import Rows

HEADER = "header.bin"
_DATA, _LENGTHS, _LINKS = "data_level0.bin", "length.bin", "link_lists.bin"
_METADATA = "index_metadata.pickle"  # written last
# version, offset of the elements, capacity, elements, bytes per element, offsets of label and vector in an element
_HEADER_FIELDS = struct.Struct("<i6Q")
_LABEL_BYTES = 8
_LINK = 4  # bytes of the number of links, and of each link


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of `data_level0.bin`: elements of `width` bytes, each with links, a vector and a label."""

    capacity: int
    elements: int
    width: int
    label: int
    vector: int

    @property
    def is_known(self) -> bool:
        """Whether the parts of an element lie as expected: links, then the vector, then the label."""
        return _LINK < self.vector < self.label and self.label + _LABEL_BYTES == self.width

    @property
    def max_links(self) -> int:
        """Links per element on the lowest level."""
        return self.vector // _LINK - 1


def _read_layout(folder: Path) -> Layout | None:
    content = (folder / HEADER).read_bytes()[: _HEADER_FIELDS.size]
    if len(content) < _HEADER_FIELDS.size:
        return None
    _, _, capacity, elements, width, label, vector = _HEADER_FIELDS.unpack(content)
    return Layout(capacity, elements, width, label, vector)


def is_torn(folder: Path, *, stored: bool, after_crash: bool) -> bool:
    """Whether an HNSW index was not written in full: sizes disagree, or the file written last is not the newest."""
    names = (HEADER, _DATA, _LENGTHS, _LINKS)
    try:
        files = {name: (folder / name).stat() for name in names}
        layout = _read_layout(folder)
        complete = (folder / _METADATA).stat().st_mtime_ns if (folder / _METADATA).exists() else None
    except FileNotFoundError:
        return stored or folder.is_dir()
    except OSError:
        return True
    if layout is None:
        return True
    capacity, elements, width = layout.capacity, layout.elements, layout.width
    torn = (
        files[_DATA].st_size not in {capacity * width, elements * width}
        or files[_LENGTHS].st_size not in {capacity * 4, elements * 4}
        or not _are_link_lists(folder / _LINKS, elements)
        or (complete is None and (stored or elements > 0))
    )
    newest = max(file.st_mtime_ns for file in files.values())
    return torn or (after_crash and complete is not None and newest > complete)


def _are_link_lists(path: Path, elements: int) -> bool:
    """Whether a file holds one list of links per element: its length in bytes as u32, then that many bytes.

    Chroma does not check the lengths it reads: from a truncated file it wrote one of 77 GB.
    """
    content = path.read_bytes()
    if len(content) < 4 * elements:
        return False
    position = 0
    for _ in range(elements):
        position += 4 + int.from_bytes(content[position : position + 4], "little")
    return position == len(content)


def zero_unused(folder: Path) -> None:
    """Zero the unused space of an index; modification times are kept, `is_torn` compares them.

    Raises:
        OSError: A file cannot be written.
    """
    layout = _read_layout(folder)
    if layout is not None:
        _zero_from(folder / _DATA, layout.elements * layout.width)
        _zero_from(folder / _LENGTHS, layout.elements * 4)


def _zero_from(path: Path, start: int) -> None:
    times = path.stat()
    size = times.st_size
    if size <= start:
        return
    with path.open("r+b") as file:
        file.seek(start)
        if not any(file.read(size - start)):
            return
        file.seek(start)
        file.write(bytes(size - start))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def erase_vectors(folder: Path, live: Rows) -> bool:
    """Overwrite the vectors of all elements of an index that are not live.

    An element gets the vector of a live neighbour, so that searches still find their way through it; zeros if it has
    none. Modification times are kept: `is_torn` compares them.

    Args:
        folder: Folder of the index; no client may be writing it.
        live: Rows that stay.

    Returns:
        Whether it was done: False when the layout of the files is unknown.

    Raises:
        OSError: A file cannot be read or written.
    """
    if not (folder / HEADER).exists():
        return True  # Chroma has not stored an index yet
    layout = _read_layout(folder)
    if layout is None or not layout.is_known:
        return layout is not None and not layout.elements
    path = folder / _DATA
    if path.stat().st_size < layout.elements * layout.width:
        return False
    rows = _rows_by_label(folder / _METADATA)
    if rows is None:
        return not layout.elements
    if layout.elements:
        _overwrite(path, layout, rows, live)
    return True


def _rows_by_label(path: Path) -> dict[int, int] | None:
    """Return label → row from the metadata of an index; None when it has another form."""
    try:
        content = _PlainUnpickler(io.BytesIO(path.read_bytes())).load()
        return {int(label): int(row) for row, label in content["id_to_label"].items()}
    except FileNotFoundError:
        return None
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError, AttributeError, IndexError):
        return None


class _PlainUnpickler(pickle.Unpickler):
    """Unpickler that accepts built-in containers, numbers and texts only: the file might have been replaced."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed here")


def _overwrite(path: Path, layout: Layout, rows: dict[int, int], live: Rows) -> None:
    times = path.stat()
    elements: npt.NDArray[np.uint8] = np.memmap(path, np.uint8, "r+", shape=(layout.elements, layout.width))
    labels = _as(elements[:, layout.label : layout.width], "<u8")[:, 0]
    known = np.array([rows.get(label, -1) for label in labels.tolist()], dtype=np.int64)
    is_live = np.isin(known, live)
    vectors = elements[:, layout.vector : layout.label]
    for position in np.flatnonzero(~is_live).tolist():
        count = min(int(_as(elements[position : position + 1, :2], "<u2")[0, 0]), layout.max_links)
        links = _as(elements[position : position + 1, _LINK : _LINK + count * _LINK], "<u4")[0]
        neighbours = [link for link in links.tolist() if link < layout.elements and is_live[link]]
        vectors[position] = vectors[neighbours[0]] if neighbours else 0
    elements.flush()  # type: ignore[attr-defined]
    del vectors, elements
    with path.open("r+b") as file:
        os.fsync(file.fileno())
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _as(part: npt.NDArray[np.uint8], kind: str) -> npt.NDArray[Any]:
    """Return bytes of elements as numbers."""
    return np.ascontiguousarray(part).view(kind)
