"""File formats and their readers, selected by file name, or by the first bytes where the name is unknown."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import PurePath
from typing import Final

from langchain_agentrag.connector import NotIndexableError
from langchain_agentrag.connectors.files import content, html, office, pdf, structured, tables
from langchain_agentrag.connectors.files.content import Content, gunzip
from langchain_agentrag.errors import AgentRagError, UnreadableSourceError

Reader = Callable[[bytes], Content]

_read_code = partial(content.read_plain, kind="code")
_READERS: Final[dict[str, Reader]] = {
    "markdown": content.read_markdown,
    "text": content.read_plain,
    "code": _read_code,
    "config": _read_code,
    "xml": _read_code,
    "html": html.read_html,
    "pdf": pdf.read_pdf,
    "docx": office.read_docx,
    "pptx": office.read_pptx,
    "xlsx": tables.read_xlsx,
    "csv": tables.read_csv,
    "tsv": partial(tables.read_csv, delimiter="\t"),
    "json": structured.read_json,
    "jsonl": structured.read_jsonl,
    "notebook": structured.read_notebook,
}
_SUFFIXES: Final = {
    "markdown": "md markdown mdown mkd mdx rmd qmd",
    "text": "txt text log rst adoc asciidoc org tex textile srt vtt po eml",
    "code": "py pyi pyx js mjs cjs jsx ts tsx vue svelte java kt kts scala groovy gradle c h cc cpp cxx hpp hh "
    "hxx cs fs vb go rs swift m mm rb php pl pm lua r jl dart ex exs erl hs clj cljs lisp el ml mli nim zig v sv "
    "vhd asm s f f90 pas d sh bash zsh fish ps1 bat cmd sql graphql proto thrift tf hcl cmake mk css scss sass less",
    "config": "yaml yml toml ini cfg conf properties env editorconfig",
    "xml": "xml xsd xsl xslt rss atom wsdl plist",
    "html": "html htm xhtml shtml",
    "pdf": "pdf",
    "docx": "docx docm dotx dotm",
    "pptx": "pptx pptm ppsx potx",
    "xlsx": "xlsx xlsm xltx xltm",
    "csv": "csv",
    "tsv": "tsv tab",
    "json": "json geojson webmanifest",
    "jsonl": "jsonl ndjson",
    "notebook": "ipynb",
}
_NAMES: Final = {"dockerfile": "code", "makefile": "code", "jenkinsfile": "code", "cmakelists.txt": "code"}
_UNSUPPORTED: Final = {
    "image": "png jpg jpeg gif bmp webp tif tiff ico svg heic psd ai eps",
    "sound or video": "mp3 wav flac ogg m4a mp4 mkv avi mov webm wmv",
    "archive": "zip tar tgz bz2 xz 7z rar zst jar war whl egg iso dmg",
    "program or library": "exe dll so dylib o a lib class pyc pyo wasm bin msi deb rpm apk",
    "database or model": "db sqlite sqlite3 pkl pickle npy npz parquet feather arrow h5 pt pth onnx safetensors gguf",
    "font": "ttf otf woff woff2 eot",
    "format that is not supported": "doc xls ppt rtf odt ods odp epub mobi pages numbers key msg",
}
_FORMAT_BY_SUFFIX: Final = {suffix: name for name, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}
_UNSUPPORTED_BY_SUFFIX: Final = {suffix: kind for kind, suffixes in _UNSUPPORTED.items() for suffix in suffixes.split()}
_MAGIC: Final = ((b"%pdf-", "pdf"), (b"<!doctype html", "html"), (b"<html", "html"))


def skip_reason(name: str) -> str | None:
    """Return why a file of this name is skipped without opening it, or None."""
    suffixes = [suffix[1:].lower() for suffix in PurePath(name).suffixes[-2:]]
    if suffixes[-2:] == ["tar", "gz"]:
        return "archive (.tar.gz), not text"
    kind = _UNSUPPORTED_BY_SUFFIX.get(suffixes[-1]) if suffixes else None
    return f"{kind} (.{suffixes[-1]}), not text" if kind else None


def format_of(name: str, head: bytes = b"") -> str:
    """Return the format of a file by its suffix, its full name or its first bytes; "text" when all are unknown."""
    path = PurePath(name.lower())
    if path.suffix == ".gz":
        return format_of(path.stem)
    if by_name := _NAMES.get(path.name) or _FORMAT_BY_SUFFIX.get(path.suffix[1:]):
        return by_name
    start = head.lstrip()[:20].lower()
    default = "code" if head[:2] == b"#!" else "text"
    return next((name for magic, name in _MAGIC if start.startswith(magic)), default)


def read(name: str, data: bytes, max_bytes: int) -> tuple[str, Content]:
    """Return format and content of a file.

    Raises:
        UnreadableSourceError: it is damaged, encrypted, without a text layer, or in an unknown encoding.
        NotIndexableError: it is not text.
        MissingExtraError: its format needs a library that is not installed.
    """
    if name.lower().endswith(".gz"):
        inner = name[: -len(".gz")]
        if reason := skip_reason(inner):
            raise NotIndexableError(reason)
        return read(inner, gunzip(data, max_bytes), max_bytes)
    file_format = format_of(name, data[:64])
    try:
        return file_format, _READERS[file_format](data)
    except AgentRagError:
        raise
    except Exception as error:  # parsers of damaged files raise errors of any class
        raise UnreadableSourceError(f"damaged {file_format} file: {type(error).__name__}: {error}") from error
