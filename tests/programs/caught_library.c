/* A library that makes system calls by instructions of its own, as Rust's rustix does. */
#include <sched.h>
#include <stdlib.h>

#include "raw.h"

long raw(long number, long a, long b, long c, long d, long e, long f) {
    return raw_call(number, a, b, c, d, e, f);
}

static char stack[1 << 16] __attribute__((aligned(16)));
static volatile int ran;

/* A thread without libc, which returns where its parent does, on another stack. */
void thread(void) {
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    long thread;
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = 0;
    __asm__ volatile("syscall\n test %%rax, %%rax\n jnz 1f\n movl $1, %[ran]\n"
                     " mov $60, %%eax\n xor %%edi, %%edi\n syscall\n1:"
                     : "=a"(thread), [ran] "+m"(ran)
                     : "a"(SYS_clone), "D"(flags), "S"(stack + sizeof stack), "d"(0), "r"(r10),
                       "r"(r8)
                     : "rcx", "r11", "memory");
    if (thread <= 0) abort();
    while (!ran) sched_yield();
}
