#!/usr/bin/env python3
"""Russian plain text out of unpacked Debian documentation packages.

usage: debian_text.py FOLDER > text.txt

Reads every *.txt.gz and every manual page (man/ru/man*/*.gz, through groff) below FOLDER. Writes one
paragraph a line and an empty line between documents, which is what `starling prepare` reads. A
manual page is a document; a book is cut at its headings. Tables, listings, menus and untranslated
paragraphs are left out: a paragraph stays if it is long enough, mostly Cyrillic and ends a sentence.
"""
import gzip
import pathlib
import re
import subprocess
import sys

DOCUMENT_CHARACTERS = 3000  # a book's document ends at the first heading past this
GROFF = ["groff", "-t", "-man", "-Kutf8", "-Tutf8", "-rLL=100000n", "-rHY=0",
         "-P-c", "-P-b", "-P-o", "-P-u"]


def manual_page(data):
    result = subprocess.run(GROFF, input=data, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            check=True)
    return result.stdout.decode("utf-8", "replace")


def is_prose(paragraph):
    letters = [c for c in paragraph if c.isalpha()]
    cyrillic = sum("а" <= c.lower() <= "я" or c in "ёЁ" for c in letters)
    return (len(paragraph) >= 40 and cyrillic >= 0.6 * len(letters) and
            len(letters) >= 0.6 * len(paragraph) and paragraph[-1] in ".!?:;»)")


def paragraphs(text):
    """Paragraphs with their lines joined; None where a heading stands."""
    for block in re.split(r"\n\s*\n", text):
        lines = [line.strip() for line in block.splitlines()]
        joined = re.sub(r"\s+", " ", re.sub(r"[\u00ad\u200b]", "", " ".join(lines))).strip()
        joined = re.sub(r"^([^\w«\"(]|o |\d+\. )+ *", "", joined)
        joined = re.sub(r" ?\^?\[\d+\]", "", joined)
        if re.match(r"(Глава )?\d+(\.\d+)*\. ", " ".join(lines)) and len(joined) < 120:
            yield None
        elif joined and is_prose(joined):
            yield joined


def documents(path):
    data = gzip.decompress(path.read_bytes())
    manual = re.search(r"/man/ru/man\d", str(path)) is not None
    text = manual_page(data) if manual else data.decode("utf-8", "replace")
    document = []
    for paragraph in paragraphs(text):
        if paragraph:
            document.append(paragraph)
        elif not manual and sum(map(len, document)) >= DOCUMENT_CHARACTERS:
            yield document
            document = []
    if document:
        yield document


def main(folder):
    seen = set()
    root = pathlib.Path(folder)
    files = sorted(set(root.rglob("*.txt.gz")) | set(root.glob("**/man/ru/man*/*.gz")))
    for path in files:
        if path.is_symlink():
            continue
        for document in documents(path):
            fresh = [p for p in document if p not in seen]
            seen.update(fresh)
            if fresh:
                print("\n".join(fresh) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
