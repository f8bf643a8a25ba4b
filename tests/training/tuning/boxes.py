"""C whose text is a tenth smaller with other inlining than LLVM's: calls that are nothing where they are inlined."""

from collections.abc import Sequence

_HELPERS = """
struct box { int value; };
struct box *make(int);
void keep(struct box *), destroy(struct box *, int, int), release(struct box *, int);
static void drop(struct box **b) {
  if (*b) { destroy(*b, 1, 2); release(*b, 3); *b = 0; }
}
static struct box *take(struct box **b) {
  struct box *taken = *b; *b = 0; keep(taken); release(taken, 7); return taken;
}
"""

_FUNCTIONS = (
    "int one_NAME(int n) { struct box *x = make(n); keep(x); x = 0; drop(&x); return n; }",
    "int two_NAME(int n) { struct box *x = make(n), *y = make(n + 1); keep(x); x = 0; drop(&x); keep(y); y = 0; "
    "drop(&y); return n; }",
    "int three_NAME(int n) { struct box *x = make(n); struct box *y = take(&x); drop(&x); return y->value; }",
    "int four_NAME(int n) { struct box *x = make(n); struct box *y = take(&x); drop(&x); drop(&y); return n; }",
    "int five_NAME(int n) { struct box *x = make(n); if (n > 3) keep(take(&x)); drop(&x); return n; }",
)


def boxes(name: str, more: Sequence[str] = ()) -> str:
    """Give a source whose functions end with ``name``, and ``more`` functions behind them."""
    return "\n".join([_HELPERS, *(function.replace("NAME", name) for function in _FUNCTIONS), *more, ""])
