"""Words that say nothing about what a query is after.

They are dropped from queries only, never from the index, so the list can change without a new index. A query
of nothing but stop words keeps them all. Lists are in the form words are compared in: lower case, simplified.
"""

from __future__ import annotations

_ENGLISH = """
a about above after again against all am an and any are aren't as at be because been before being
below between both but by can can't cannot could couldn't did didn't do does doesn't doing don't
down during each few for from further had hadn't has hasn't have haven't having he he'd he'll he's
her here here's hers herself him himself his how how's i i'd i'll i'm i've if in into is isn't it
it's its itself let let's me more most mustn't my myself no nor not of off on once only or other
ought our ours ourselves out over own same shan't she she'd she'll she's should shouldn't so some
such than that that's the their theirs them themselves then there there's these they they'd they'll
they're they've this those through to too under until up very was wasn't we we'd we'll we're we've
were weren't what what's when when's where where's which while who who's whom why why's will with
won't would wouldn't you you'd you'll you're you've your yours yourself yourselves
"""

_CHINESE = """
的 了 和 是 在 有 也 与 及 或 都 就 而 并 把 被 对 从 到 向 以 于 为 由 让 使 给 跟 同 比 之 其 此
该 这 那 这个 那个 这些 那些 这样 那样 这里 那里 这么 那么 我 你 您 他 她 它 我们 你们 他们 她们
它们 自己 什么 怎么 怎样 怎么样 怎么办 如何 为什么 为何 哪 哪个 哪些 哪里 哪儿 哪一 谁 何 几 吗 呢
吧 啊 呀 嘛 哦 嗯 着 过 地 得 所 则 若 但 但是 因为 所以 如果 虽然 而且 并且 或者 以及 还是 还 又
再 很 太 更 最 非常 已 已经 曾 曾经 将 会 能 可 可以 能够 应该 要 想 请 请问 一个 一些 一下 一种 没
没有 不 是否 是不是 有没有 能否 关于 对于 根据 通过 进行 只 只是 仅 才 却 即 即使 等 等等 时 时候
里 中 上 下
"""

ENGLISH_STOP_WORDS = frozenset(_ENGLISH.split())
"""Snowball's English list."""

CHINESE_STOP_WORDS = frozenset(_CHINESE.split())
"""Function and question words of modern Chinese."""

STOP_WORDS = ENGLISH_STOP_WORDS | CHINESE_STOP_WORDS
