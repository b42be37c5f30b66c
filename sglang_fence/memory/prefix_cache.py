"""``PrefixCache``: a radix tree whose edges are whole pages of tokens.

A request holds the path that its prompt matched (or that its own pages became) and lets go of it when it ends. Paths
that nobody holds stay until their pages are needed, the least recently used leaf first.

Insertion finds pages that another request cached in the meantime under the same tokens. The live request's row is then
pointed at the cached pages and its own copies are freed: a write of a row that the running forward still reads.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(slots=True, eq=False)
class Node:
    """One cached page: the tokens that lead to it from its parent, and who holds it."""

    parent: Node | None
    key: tuple[int, ...]
    page: int
    children: dict[tuple[int, ...], Node] = field(default_factory=dict)
    holders: int = 0
    """Requests whose path goes through here."""
    window_holders: int = 0
    """Those of them whose sliding window may still reach it."""
    last_used: int = 0


@dataclass(slots=True)
class Path:
    """What one request holds of the tree, from the root down. ``passed`` nodes have left its sliding window."""

    nodes: list[Node] = field(default_factory=list)
    passed: int = 0

    @property
    def pages(self) -> list[int]:
        """The cached pages, in the order of positions."""
        return [node.page for node in self.nodes]


class PrefixCache:
    """Pages by the tokens they hold.

    Args:
        page_size: tokens a page.
        drop: called with each page that is evicted.
    """

    def __init__(self, page_size: int, drop: Callable[[int], None]) -> None:
        self._page_size = page_size
        self._drop = drop
        self._root = Node(None, (), 0)
        self._clock = 0
        self._idle = 0

    @property
    def evictable(self) -> int:
        """How many pages nobody holds. A held node's ancestors are held too, so all of them can go."""
        return self._idle

    def match(self, tokens: Sequence[int], usable: Callable[[list[int]], int]) -> Path:
        """Hold the longest cached prefix of ``tokens`` and return its path.

        Args:
            tokens: the prompt; its last token is never matched, since something must be computed.
            usable: given the pages found, in order, says how many of them may be used (a sliding window may have lost
                the tail of a prefix).
        """
        found: list[Node] = []
        node = self._root
        for key in self._keys(tokens, len(tokens) - 1):
            child = node.children.get(key)
            if child is None:
                break
            found.append(child)
            node = child
        path = Path()
        for node in found[: usable([node.page for node in found])]:
            self._hold(path, node)
        return path

    def insert(self, tokens: Sequence[int], pages: Sequence[int], path: Path) -> list[tuple[int, int, int]]:
        """Cache the whole pages of ``tokens`` that lie beyond ``path``, and hold them.

        Args:
            tokens: tokens whose keys and values are computed.
            pages: the request's pages, in order; updated nowhere here.
            path: what the request holds already; extended.

        Returns:
            For each page that was cached already under the same tokens: its index in ``pages``, the request's own page,
            which is free now, and the cached page that takes its place.
        """
        replaced: list[tuple[int, int, int]] = []
        node = path.nodes[-1] if path.nodes else self._root
        for index, key in enumerate(self._keys(tokens, len(tokens))):
            if index < len(path.nodes):
                continue
            child = node.children.get(key)
            if child is None:
                child = Node(node, key, pages[index])
                node.children[key] = child
                self._idle += 1
            elif child.page != pages[index]:
                replaced.append((index, pages[index], child.page))
            self._hold(path, child)
            node = child
        return replaced

    def release(self, path: Path) -> None:
        """Let go of a path; its pages stay cached."""
        for index, node in enumerate(path.nodes):
            node.holders -= 1
            if index >= path.passed:
                node.window_holders -= 1
            if node.holders == 0:
                self._idle += 1
        path.nodes.clear()
        path.passed = 0

    def pass_window(self, path: Path, first_needed: int) -> None:
        """Say that the request's window has moved past the first ``first_needed`` pages of its path."""
        while path.passed < min(first_needed, len(path.nodes)):
            path.nodes[path.passed].window_holders -= 1
            path.passed += 1

    def evict(self, count: int) -> int:
        """Drop up to ``count`` pages that nobody holds, least recently used leaves first; return how many."""
        leaves = [(node.last_used, id(node), node) for node in self._walk() if not node.children and not node.holders]
        heapq.heapify(leaves)
        dropped = 0
        while leaves and dropped < count:
            _, _, node = heapq.heappop(leaves)
            parent = node.parent
            if parent is None:
                continue
            del parent.children[node.key]
            self._idle -= 1
            self._drop(node.page)
            dropped += 1
            if parent is not self._root and not parent.children and not parent.holders:
                heapq.heappush(leaves, (parent.last_used, id(parent), parent))
        return dropped

    def idle_window_pages(self, is_mapped: Callable[[int], bool], count: int | None) -> list[int]:
        """Cached pages that are mapped for sliding layers though no window reaches them, least recently used first.

        ``count`` bounds how many; None for all.
        """
        idle = [node for node in self._walk() if not node.window_holders and is_mapped(node.page)]
        idle.sort(key=lambda node: node.last_used)
        return [node.page for node in idle[:count]]

    def _hold(self, path: Path, node: Node) -> None:
        if node.holders == 0:
            self._idle -= 1
        self._clock += 1
        node.holders += 1
        node.window_holders += 1
        node.last_used = self._clock
        path.nodes.append(node)

    def _keys(self, tokens: Sequence[int], limit: int) -> list[tuple[int, ...]]:
        size = self._page_size
        return [tuple(tokens[start : start + size]) for start in range(0, limit - size + 1, size)]

    def _walk(self) -> list[Node]:
        nodes = list(self._root.children.values())
        for node in nodes:
            nodes.extend(node.children.values())
        return nodes
