/* Something to compile: calls that may be inlined. */
static int twice(int value) { return 2 * value; }

static int mix(int value) {
  int sum = 0;
  for (int step = 0; step < value; ++step)
    sum += twice(step) ^ (value >> (step & 7));
  return sum;
}

int first(int value) { return mix(twice(value)) + mix(value); }

int second(int value) { return mix(value + 1) - twice(first(value)); }
