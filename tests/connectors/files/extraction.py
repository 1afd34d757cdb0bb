"""Read one file from memory, and look at its sections and chunks."""

from langchain_agentrag.connectors.files.formats import read
from langchain_agentrag.text.chunking import Chunking, chunk_document
from langchain_agentrag.types import SourceDocument

MEGABYTE = 2**20


def content(name, data):
    """Return the extracted text, kind and sections of a file."""
    return read(name, data.encode() if isinstance(data, str) else data, 10 * MEGABYTE)[1]


def chunks_of(extracted, **settings):
    """Return the chunks of an extracted file; `settings` are those of `Chunking`."""
    document = SourceDocument("d", extracted.text, kind=extracted.kind, sections=extracted.sections)
    return chunk_document(document, Chunking(**settings))


def parts(extracted):
    """Return the (text, locator) pairs of the sections."""
    return [(extracted.text[s.start : s.end], dict(s.locator)) for s in extracted.sections]
