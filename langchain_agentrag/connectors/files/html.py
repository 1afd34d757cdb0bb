"""HTML pages as Markdown, without scripts, styles and navigation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from langchain_agentrag.connectors.files.content import Content, clean_text, decoded_metadata, markdown_table, one_line
from langchain_agentrag.connectors.files.encodings import decode
from langchain_agentrag.errors import MissingExtraError

if TYPE_CHECKING:
    from bs4 import Tag

_SKIPPED_TAGS: Final = frozenset(
    ("script", "style", "noscript", "template", "svg", "iframe", "object", "embed", "canvas", "head", "nav", "button",
     "select", "option", "datalist", "dialog")
)  # fmt: skip
_BLOCK_TAGS: Final = frozenset(
    ("address", "article", "aside", "blockquote", "body", "center", "dd", "details", "div", "dl", "dt", "fieldset",
     "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "html", "legend",
     "li", "main", "ol", "p", "pre", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul")
)  # fmt: skip
_NAVIGATION = re.compile(
    r"(?:^|[-_])(?:nav|navbar|navheader|navfooter|navigation|toc|breadcrumbs?|sidebar|menu|pagination|cookie|skip-?link)"
    r"(?:$|[-_])",
    re.IGNORECASE,
)
_DOCBOOK_PAGERS = frozenset({"navheader", "navfooter"})
"""DocBook's classes of the lines with links to the previous and next page, which also repeat the title."""
_MIN_LINKED_SHARE = 0.6
"""Lowest share of text inside links at which a block with a navigation-like class or id is navigation."""
_MIN_MAIN_SHARE = 0.4
"""Lowest share of a page's text at which its <main> or only <article> is the page's content."""
_XML_DECLARATION = re.compile(r"\A\s*+<\?xml[^>]*+(?<=\?)>")
_BLANK_LINES = re.compile(r"\n{3,}")


def read_html(data: bytes) -> Content:
    """Read an HTML page as Markdown, with its title as metadata."""
    decoded = decode(data)
    try:
        from bs4 import BeautifulSoup, FeatureNotFound
    except ImportError as error:
        raise MissingExtraError("HTML files", "files") from error
    try:
        soup = BeautifulSoup(_XML_DECLARATION.sub("", clean_text(decoded.text), count=1), "lxml")
    except FeatureNotFound as error:  # lxml is not installed
        raise MissingExtraError("HTML files", "files") from error
    title = one_line(soup.title.get_text()) if soup.title else ""
    root = _main_part(soup.body or soup)
    try:
        text = _MarkdownWriter().write(root)
    except RecursionError:  # nested far deeper than a page written by a person
        text = root.get_text("\n", strip=True)
    if title and title not in text[: 2 * len(title) + 20]:
        text = f"# {title}\n\n{text}"
    metadata = ({"title": title} if title else {}) | decoded_metadata(decoded)
    return Content(text.strip(), "markdown", metadata=metadata)


def _main_part(body: Tag) -> Tag:
    candidates = body.find_all("main") or body.find_all(None, {"role": "main"}) or body.find_all("article")
    if len(candidates) == 1 and len(candidates[0].get_text()) >= _MIN_MAIN_SHARE * len(_visible_text(body)):
        return candidates[0]
    return body


def _visible_text(body: Tag) -> str:
    return "".join(string for string in body.strings if not string.parent or string.parent.name not in _SKIPPED_TAGS)


def _is_boilerplate(tag: Tag) -> bool:
    if tag.name in _SKIPPED_TAGS or tag.has_attr("hidden") or tag.get("role") == "navigation":
        return True
    style = str(tag.get("style", "")).replace(" ", "").lower()
    if "display:none" in style or "visibility:hidden" in style:
        return True
    names = [*(tag.get("class") or ()), tag.get("id") or ""]
    if not any(_NAVIGATION.search(str(name)) for name in names):
        return False
    length = len("".join(tag.get_text().split()))
    linked = sum(len("".join(link.get_text().split())) for link in tag.find_all("a"))
    return length == 0 or linked >= _MIN_LINKED_SHARE * length or bool(_DOCBOOK_PAGERS.intersection(map(str, names)))


class _MarkdownWriter:
    """Converts the elements of a page to Markdown blocks."""

    def __init__(self) -> None:
        self.blocks: list[str] = []
        self.inline: list[str] = []
        self.prefix = ""

    def write(self, root: Tag) -> str:
        self._children(root)
        self._flush()
        return _BLANK_LINES.sub("\n\n", "".join(self.blocks)).strip()

    def _flush(self, prefix: str = "", end: str = "\n\n") -> None:
        lines = "".join(self.inline).split("\x00")
        text = "\n".join(filter(None, (one_line(line) for line in lines)))
        self.inline = []
        if text:
            self.blocks.append((prefix or self.prefix) + text + end)
            self.prefix = ""

    def _children(self, tag: Tag) -> None:
        from bs4.element import NavigableString, PreformattedString, Tag

        for child in tag.children:
            if isinstance(child, Tag):
                if not _is_boilerplate(child):
                    self._tag(child)
            elif isinstance(child, NavigableString) and not isinstance(child, PreformattedString):
                self.inline.append(str(child))

    def _tag(self, tag: Tag) -> None:
        name = tag.name
        if name == "br":
            self.inline.append("\x00")
        elif name == "img":
            self.inline.append(f" {tag.get('alt') or ''} ")
        elif name not in _BLOCK_TAGS:
            self._children(tag)
        else:
            self._block(tag, name)

    def _block(self, tag: Tag, name: str) -> None:
        self._flush()
        if name == "pre":
            code = tag.get_text().strip("\n")
            if code.strip():
                fence = "````" if "```" in code else "```"
                self.blocks.append(f"{fence}\n{code}\n{fence}\n\n")
        elif name == "table" and not _is_layout(tag):
            rows = [[cell.get_text(" ") for cell in row.find_all(["td", "th"])] for row in tag.find_all("tr")]
            caption = tag.find("caption")
            if caption is not None:
                self.blocks.append(one_line(caption.get_text()) + "\n\n")
            self.blocks.append(markdown_table(rows) + "\n\n")
        else:
            level = int(name[1]) if len(name) == 2 and name[1].isdigit() else 0  # noqa: PLR2004  h1 to h6
            self.prefix = "- " if name == "li" else self.prefix
            self._children(tag)
            if level:
                self.inline = [one_line("".join(self.inline).replace("\x00", " "))]
            self._flush("#" * level + " " if level else "", "\n" if name in ("li", "dt") else "\n\n")
            if name in ("ul", "ol", "dl"):
                self.blocks.append("\n")


def _is_layout(table: Tag) -> bool:
    """Return whether a table is for layout rather than data."""
    return table.find(["table", "h1", "h2", "h3", "ul", "ol", "pre"]) is not None
