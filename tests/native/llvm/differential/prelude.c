/* Before every program's functions: declarations, because headers take longer than such programs. */
#ifdef __cplusplus
extern "C" {
#endif
typedef long jmp_buf[32]; int _setjmp(long *) __attribute__((returns_twice));
__attribute__((noreturn)) void longjmp(long *, int); int printf(const char *, ...);
void *memcpy(void *, const void *, unsigned long); void *memmove(void *, const void *, unsigned long);
void *memset(void *, int, unsigned long); int memcmp(const void *, const void *, unsigned long);
unsigned long strlen(const char *); int strcmp(const char *, const char *);
#ifdef __cplusplus
}
#endif
typedef unsigned u; typedef unsigned long ul; typedef unsigned char b; typedef unsigned short us;
typedef u v4 __attribute__((vector_size(16))); typedef us v8 __attribute__((vector_size(16)));
static u steps, g[64]; static b h[64]; struct pair { u x, y; b z[12]; } p[8]; static us k16[64];
static __thread u local[4]; static volatile u wild[4]; static u at; static ul at8;
static struct { u a : 3; int b : 7; ul c : 40; } bits; static char text[32] = "policy bridge";
struct big { u a[9]; }; struct two { double d; ul i; };
static struct big turn(struct big q, u k) { q.a[k % 9] ^= k; return q; }
__attribute__((noinline)) static struct two cross(struct two q, u k) { q.i += k; q.d = (double)(k & 1023); return q; }
static u many(u n, ...) {
  __builtin_va_list l; u s = n; __builtin_va_start(l, n);
  while (n--) {
    s = s * 3 + __builtin_va_arg(l, u); s ^= (u)__builtin_va_arg(l, ul); s += (u)__builtin_va_arg(l, double);
  }
  __builtin_va_end(l); return s;
}
#ifdef __cplusplus
struct Guard { u &r; Guard(u &q) : r(q) {} ~Guard() { g[r & 63] ^= 5; r += 3; } };
__attribute__((noinline)) static u thrown(u v) { if ((v & 3) == 1) throw v; if ((v & 7) == 2) throw 'c'; return v >> 1; }
#endif
