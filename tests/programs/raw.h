/* A system call by an instruction of the program's own, as Rust's rustix and JITs make them: the
   kernel's answer, no errno. */
#include <sys/syscall.h>

static inline long raw_call(long number, long a, long b, long c, long d, long e, long f) {
    long answer;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return answer;
}

/* The arguments of a call, six of them. */
#define FIRST(a, b, c, d, e, f, ...) \
    (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f)
