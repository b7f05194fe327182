/* System calls past libc in a process that had none when it began: `caught LIBRARY` loads one that
   makes them, while threads run; `caught` alone writes the instructions itself, as a JIT does. Each
   answer is printed. Then what else a thread may do by itself: handlers, masks, stacks. */
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <threads.h>
#include <ucontext.h>

#include "check.h"
#include "raw.h"

typedef long call(long, long, long, long, long, long, long);
static call *raw;

#define CALL(name, ...) raw(SYS_##name, FIRST(__VA_ARGS__, 0, 0, 0, 0, 0, 0))
#define SAY(name, ...) printf("%s: %ld\n", #name, CALL(name, __VA_ARGS__))

/* mov rax, rdi; ...; mov r9, [rsp + 8]; syscall; ret */
static const unsigned char CODE[] = {
    0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x4d, 0x89,
    0xc2, 0x4d, 0x89, 0xc8, 0x4c, 0x8b, 0x4c, 0x24, 0x08, 0x0f, 0x05, 0xc3,
};

static call *written(void) {
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    memcpy(page, CODE, sizeof CODE);
    CHECK(mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0);
    return (call *)page;
}

static void file(int who) {
    char name[32], room[32] = "";
    snprintf(name, sizeof name, "file-%d", who);
    for (int i = 0; i < 100; i++) {
        long fd = CALL(openat, AT_FDCWD, name, O_RDWR | O_CREAT, 0600);
        CHECK(fd >= 0);
        CHECK(CALL(pwrite64, fd, name, strlen(name), 0) == (long)strlen(name));
        CHECK(CALL(pread64, fd, room, sizeof room, 0) == (long)strlen(name));
        CHECK(strcmp(name, room) == 0 && CALL(close, fd) == 0);
    }
}

static pthread_barrier_t loaded;

static void *early(void *who) {
    pthread_barrier_wait(&loaded);
    file((int)(intptr_t)who);
    return NULL;
}

static void *late(void *who) {
    file((int)(intptr_t)who);
    return who;
}

/* A thread of C11's, whose function gives an int, and one that ends itself. */
static int standard(void *who) {
    file((int)(intptr_t)who);
    if ((intptr_t)who > 20)
        thrd_exit(-(int)(intptr_t)who);
    return -(int)(intptr_t)who;
}

static volatile sig_atomic_t codes[4], handled;

static void on_sys(int signal, siginfo_t *info, void *context) {
    CHECK(signal == SIGSYS);
    codes[handled++ & 3] = info->si_code;
    if (info->si_code == 1)
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = 4242;
}

/* What a program that has itself filtered is told, and that calls are caught as before. */
static void filtered(void) {
    struct sigaction action = {.sa_sigaction = on_sys, .sa_flags = SA_SIGINFO}, old;
    CHECK(sigaction(SIGSYS, &action, NULL) == 0 && sigaction(SIGSYS, NULL, &old) == 0);
    printf("told of its own: %d\n", old.sa_sigaction == on_sys);
    raise(SIGSYS);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    printf("trapped: %ld\n", syscall(SYS_getppid));
    printf("handled %d, codes %d %d\n", handled, codes[0], codes[1]);
    file(300);
}

static volatile sig_atomic_t signalled;

static void on_signal(int signal) {
    struct stat stat;
    CHECK(signal == SIGUSR1 && CALL(stat, "file-0", &stat) == 0 && stat.st_size == 6);
    signalled++;
}

/* How a handler that was installed by number returns. */
__asm__(".text\n.type restorer, @function\nrestorer:\n mov $15, %eax\n jmp *by_number(%rip)\n");
void restorer(void);
static unsigned char RETURN[] = {0x0f, 0x05};
void *by_number;

struct kernel_action {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};

static void signals(void) {
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(page, RETURN, sizeof RETURN);
    CHECK(mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0);
    by_number = page;
    struct kernel_action action = {on_signal, 0x04000000, restorer, 0}, old;
    SAY(rt_sigaction, SIGUSR1, &action, NULL, 8);
    SAY(rt_sigaction, SIGUSR1, NULL, &old, 8);
    printf("handler kept: %d\n", old.handler == on_signal);
    SAY(tgkill, getpid(), syscall(SYS_gettid), SIGUSR1);
    printf("signalled: %d\n", signalled);
    /* But for the two that libc keeps for itself. */
    unsigned long all = ~(3ul << 31), mask = 0;
    SAY(rt_sigprocmask, SIG_BLOCK, &all, &mask, 8);
    printf("blocked before: %lx\n", mask);
    CALL(tgkill, getpid(), syscall(SYS_gettid), SIGUSR1);
    file(1);
    SAY(rt_sigprocmask, SIG_SETMASK, &mask, &all, 8);
    printf("blocked then: %lx, signalled: %d\n", all, signalled);
    SAY(rt_sigprocmask, 77, &mask, NULL, 8);
    static char alternate[65536];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate}, told;
    SAY(sigaltstack, &stack, NULL);
    CHECK(sigaltstack(NULL, &told) == 0);
    printf("stack kept: %d\n", told.ss_sp == alternate);
}

/* Another program, which finds the files. */
static void run(void) {
    char *const list[] = {"sh", "-c", "cat file-0; echo; exit 3", NULL};
    if (CALL(fork, 0) == 0) {
        CALL(execve, "/bin/sh", list, environ);
        CALL(exit_group, 9);
    }
    int status = 0;
    wait(&status);
    printf("program: %d\n", WEXITSTATUS(status));
}

int main(int count, char **arguments) {
    pthread_t threads[4];
    CHECK(pthread_barrier_init(&loaded, NULL, 3) == 0);
    for (intptr_t i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, early, (void *)(i + 10)) == 0);
    if (count > 1) {
        void *library = dlopen(arguments[1], RTLD_NOW);
        CHECK(library != NULL);
        raw = (call *)dlsym(library, "raw");
        CHECK(raw != NULL);
    } else {
        raw = written();
    }
    pthread_barrier_wait(&loaded);
    file(0);
    for (intptr_t i = 2; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, late, (void *)(i + 10)) == 0);
    for (int i = 0; i < 4; i++) {
        void *told;
        CHECK(pthread_join(threads[i], &told) == 0);
        printf("thread %d: %ld\n", i, (long)(intptr_t)told);
    }
    for (intptr_t i = 0; i < 2; i++) {
        thrd_t thread;
        int told = 0;
        CHECK(thrd_create(&thread, standard, (void *)(20 + i)) == thrd_success);
        CHECK(thrd_join(thread, &told) == thrd_success);
        printf("standard thread: %d\n", told);
    }
    SAY(openat, AT_FDCWD, "nothing", O_RDONLY, 0);
    SAY(mkdir, "directory", 0755);
    SAY(mkdir, "directory", 0755);
    SAY(close, 4000);
    errno = 77;
    CALL(close, 4000);
    printf("errno is left: %d\n", errno);
    for (int how = 0; how < 2; how++) {
        long pid = how == 0 ? (long)fork() : CALL(fork, 0);
        if (pid == 0) {
            file(100 + how);
            CALL(exit_group, 7);
        }
        int status = 0;
        CHECK(waitpid((pid_t)pid, &status, 0) == pid);
        printf("child: %d\n", WEXITSTATUS(status));
    }
    signals();
    fflush(stdout);
    run();
    filtered();
    if (count > 1) {
        void (*thread)(void) = (void (*)(void))dlsym(dlopen(arguments[1], RTLD_NOW), "thread");
        CHECK(thread != NULL);
        thread();
        printf("a thread by number ran\n");
        fflush(stdout);
    }
    return 0;
}
