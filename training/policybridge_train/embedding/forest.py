"""A forest of a form in C: tables that are walked without branches."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from policybridge_forms import Forest
from policybridge_server.forms.forest import Placed, Tree, Weight
from policybridge_train.embedding.body import Body
from policybridge_train.embedding.node_tests import NodeTests
from policybridge_train.embedding.rows import Row
from policybridge_train.embedding.text import c_type, literal, table

_TOGETHER: Final = 8
"""Trees that are walked together."""
_LARGEST: Final = (1 << 16) - 1
_NAN: Final = 3


def write_forest(body: Body, forest: Forest, x: Row, out: Row, *, is_number: bool) -> None:
    """Write the scores of the columns ``x``; ``is_number``: none of them is ever NaN."""
    function = _Walks(body, forest, is_number=is_number).write()
    columns = f"&{x['0']}" if forest.columns else "0"
    body.line(f"{function}({columns}, &{out['0']});")


def _trees(forest: Forest) -> Sequence[Tree]:
    """Give each tree's nodes; a split's ``skip`` is the distance to its first child."""
    first, begins = forest.first_children(), forest.begins()
    nodes = []
    for place, kind in enumerate(forest.kinds.tolist()):
        if kind:
            threshold = float(forest.thresholds[place])
            nodes.append(Placed(int(forest.links[place]), threshold, int(first[place]) - place, kind == _NAN))
        else:
            own = range(begins[place], begins[place + 1])
            weights = tuple(Weight(int(forest.owners[each]), float(forest.weights[each])) for each in own)
            nodes.append(Placed(0, 0.0, weights=weights))
    ends = np.cumsum(forest.sizes, dtype=np.int64).tolist()
    spans = zip([0, *ends[:-1]], ends, forest.depths(), strict=True)
    return [Tree(nodes[begin:end], depth) for begin, end, depth in spans]


class _Walks:
    """Writes the tables of an ensemble, and the function that walks them."""

    def __init__(self, body: Body, forest: Forest, *, is_number: bool) -> None:
        trees = _trees(forest)
        self._body = body
        self._trees = trees
        self._real = c_type(forest.dtype)
        self._dtype = forest.dtype
        self._targets = forest.targets
        self._aggregate = forest.aggregate.name
        self._name = body.name(f"{body.prefix}_trees")
        starts = np.cumsum([0, *(len(tree.nodes) for tree in trees)]).tolist()
        self._roots = starts[:-1]
        self._nodes = [node for tree in trees for node in tree.nodes]
        self._tests = NodeTests(self._nodes, is_number)

    def write(self) -> str:
        """Give the function's name: it takes the columns and the place for the targets' sums."""
        single = self._targets == 1
        parts = [
            self._tests.tables(self._name, self._dtype),
            self._node_table(),
            self._group_tables(),
            self._single_leaves() if single else self._leaves(),
            self._function(),
        ]
        self._body.functions.append("\n".join(part for part in parts if part))
        return self._name

    def _node_table(self) -> str:
        small = max([len(self._tests.numbers), *(node.skip for node in self._nodes)]) <= _LARGEST
        kind = f"struct {self._name}_node {{ uint{16 if small else 32}_t test, skip; }}"
        rows = (f"{{{self._tests.number(node)}, {node.skip}}}" for node in self._nodes)
        return f"{kind};\n{table(f'struct {self._name}_node', f'{self._name}_nodes', rows)}"

    def _single_leaves(self) -> str:
        # Those of the nodes that are no leaves are not read.
        values = [node.weights[0].value if node.weights else 0.0 for node in self._nodes]
        return table(
            self._real, f"{self._name}_leaves", (literal(self._dtype.type(each), self._dtype) for each in values)
        )

    def _leaves(self) -> str:
        """Write the weights of all leaves in one row, and where those of each node begin."""
        counts = np.cumsum([0, *(len(node.weights) for node in self._nodes)]).tolist()
        weights: list[Weight] = [weight for node in self._nodes for weight in node.weights] or [Weight(0, 0.0)]
        return "\n".join(
            [
                table("uint32_t", f"{self._name}_begins", map(str, counts)),
                table("uint32_t", f"{self._name}_targets", (str(each.target) for each in weights)),
                table(
                    self._real,
                    f"{self._name}_weights",
                    (literal(self._dtype.type(each.value), self._dtype) for each in weights),
                ),
            ]
        )

    def _function(self) -> str:
        count = len(self._trees)
        lines = [
            f"/* {count} trees, {len(self._nodes)} nodes. */",
            f"static void {self._name}(const {self._real} *x, {self._real} *out) {{",
            f"  const struct {self._name}_node *n = {self._name}_nodes;",
            f"  uint32_t leaf[{max(count, 1)}];",
            f"  uint8_t tests[{len(self._tests.numbers) + 1}];",
            *self._tests.lines(self._name),
            *self._walks(),
            *(self._single_sum() if self._targets == 1 else self._sums()),
            "}",
        ]
        return "\n".join(lines) + "\n"

    def _walks(self) -> list[str]:
        """Walk groups of trees that are about as deep, in a loop: a compiler's memory does not grow with the trees."""
        order = self._order()
        whole = len(order) - len(order) % _TOGETHER
        lines = []
        if whole:
            lines += ["  {", "    int group;", f"    for (group = 0; group < {whole // _TOGETHER}; ++group) {{"]
            first = [f"{self._name}_roots[{_TOGETHER} * group + {place}]" for place in range(_TOGETHER)]
            last = [f"leaf[{self._name}_order[{_TOGETHER} * group + {place}]]" for place in range(_TOGETHER)]
            lines += [f"    {line}" for line in self._walk(first, last, f"{self._name}_depths[group]")]
            lines += ["    }", "  }"]
        if rest := order[whole:]:
            first = [str(self._roots[number]) for number in rest]
            last = [f"leaf[{number}]" for number in rest]
            lines += self._walk(first, last, str(self._trees[rest[-1]].depth))
        return lines

    def _order(self) -> list[int]:
        return sorted(range(len(self._trees)), key=lambda number: self._trees[number].depth)

    def _group_tables(self) -> str:
        """Write the trees in the order in which they are walked, and the depth of each whole group."""
        order = self._order()
        depths = [self._trees[number].depth for number in order[_TOGETHER - 1 :: _TOGETHER]]
        if not depths:
            return ""
        return "\n".join(
            [
                table("uint32_t", f"{self._name}_order", map(str, order)),
                table("uint32_t", f"{self._name}_roots", (str(self._roots[number]) for number in order)),
                table("uint16_t", f"{self._name}_depths", map(str, depths)),
            ]
        )

    def _walk(self, first: Sequence[str], last: Sequence[str], depth: str) -> list[str]:
        """Walk some trees in step, from these roots; write the leaves' numbers to these places."""
        names = [f"a{place}" for place in range(len(first))]
        begins = ", ".join(f"{name} = {root}" for name, root in zip(names, first, strict=True))
        lines = ["  {", f"    uint32_t {begins};", "    int step;"]
        lines.append(f"    for (step = 0; step < {depth}; ++step) {{")
        lines += [f"      {self._step(name)}" for name in names]
        lines.append("    }")
        lines += [f"    {place} = {name};" for name, place in zip(names, last, strict=True)]
        return [*lines, "  }"]

    def _step(self, at: str) -> str:
        return f"{at} += (uint32_t)n[{at}].skip + tests[n[{at}].test];"

    def _single_sum(self) -> list[str]:
        count, leaf = len(self._trees), f"{self._name}_leaves[leaf[tree]]"
        lines = [f"  {self._real} all = 0;", "  int tree;"]
        if self._aggregate in ("SUM", "AVERAGE"):
            lines.append(f"  for (tree = 0; tree < {count}; ++tree) all += {leaf};")
        else:
            sign = "<" if self._aggregate == "MIN" else ">"
            lines.append(f"  for (tree = 0; tree < {count}; ++tree) if (tree == 0 || {leaf} {sign} all) all = {leaf};")
        if self._aggregate == "AVERAGE":
            lines.append(f"  all /= {count};")
        return [*lines, "  out[0] = all;"]

    def _sums(self) -> list[str]:
        targets, name = self._targets, self._name
        sign = {"MIN": "<", "MAX": ">"}.get(self._aggregate)
        target, weight = f"{name}_targets[w]", f"{name}_weights[w]"
        lines = [f"  unsigned char seen[{targets}];", "  int tree;", "  uint32_t w;"]
        lines.append(f"  for (w = 0; w < {targets}; ++w) out[w] = 0, seen[w] = 0;")
        lines.append(f"  for (tree = 0; tree < {len(self._trees)}; ++tree)")
        lines.append(f"    for (w = {name}_begins[leaf[tree]]; w < {name}_begins[leaf[tree] + 1]; ++w) {{")
        if sign:
            lines.append(f"      if (!seen[{target}] || {weight} {sign} out[{target}]) out[{target}] = {weight};")
        else:
            lines.append(f"      out[{target}] += {weight};")
        lines.append(f"      seen[{target}] = 1;")
        lines.append("    }")
        if self._aggregate == "AVERAGE":
            lines.append(f"  for (w = 0; w < {targets}; ++w) out[w] /= {len(self._trees)};")
        return [*lines, "  (void)seen;"]
