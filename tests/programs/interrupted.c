/* Calls that wait, made by instructions of the program's own, while signals come: EINTR, or, with
   SA_RESTART, they go on until what they wait for has come. Each answer is printed. */
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "check.h"
#include "raw.h"

#define CALL(name, ...) raw_call(SYS_##name, FIRST(__VA_ARGS__, 0, 0, 0, 0, 0, 0))

/* What the handler does when it has been called so often that the call has surely gone on. */
enum { OFTEN = 5 };
static volatile sig_atomic_t handled;
static void (*helps)(void);

static void on_alarm(int signal) {
    CHECK(signal == SIGALRM);
    int before = errno;
    if (++handled == OFTEN && helps) helps();
    errno = before;
}

static void alarms(int flags, void (*help)(void)) {
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = flags};
    /* Again and again: the first may come before the call waits. */
    struct itimerval timer = {.it_value = {.tv_usec = 20000}, .it_interval = {.tv_usec = 20000}};
    handled = 0;
    helps = help;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

static void quiet(void) {
    struct itimerval never = {0};
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

/* The last answer. */
static int last;

/* A call that is interrupted, and then one that goes on until `help` has helped. */
#define BOTH(what, call, help)                                                                     \
    do {                                                                                           \
        alarms(0, NULL);                                                                           \
        long answer = call;                                                                        \
        quiet();                                                                                   \
        printf("%s: %ld\n", what, answer);                                                         \
        alarms(SA_RESTART, help);                                                                  \
        answer = call;                                                                             \
        quiet();                                                                                   \
        last = (int)answer;                                                                        \
        printf("%s again: %d after %d\n", what, answer >= 0, handled >= OFTEN);                    \
    } while (0)

static const char *pipe_path;
static int other = -1, listening = -1;
static pid_t holder;

static void opens_both_ends(void) {
    other = (int)CALL(openat, AT_FDCWD, pipe_path, O_RDWR | O_NONBLOCK, 0);
}

static void writes(void) {
    CHECK(CALL(write, other, "words", 5) == 5);
}

static void accepts(void) {
    CHECK(CALL(accept, listening, NULL, NULL) >= 0);
}

static void ends_the_holder(void) {
    CHECK(kill(holder, SIGKILL) == 0 && waitpid(holder, NULL, 0) == holder);
}

static void pipes(const char *path) {
    char text[16];
    pipe_path = path;
    CHECK(mkfifo(path, 0600) == 0);
    BOTH("open to read", CALL(openat, AT_FDCWD, path, O_RDONLY, 0), opens_both_ends);
    CHECK(close(last) == 0 && close(other) == 0);
    BOTH("open to write", CALL(open, path, O_WRONLY, 0), opens_both_ends);
    CHECK(close(last) == 0 && close(other) == 0);
    other = open(path, O_RDWR);
    CHECK(other >= 0);
    BOTH("read", CALL(read, other, text, sizeof text), writes);
    close(other);
    CHECK(unlink(path) == 0);
}

static void connections(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, path);
    listening = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(listening, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(listen(listening, 0) == 0);
    int first = socket(AF_UNIX, SOCK_STREAM, 0), second = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(CALL(connect, first, &address, sizeof address) == 0);
    BOTH("connect", CALL(connect, second, &address, sizeof address), accepts);
    CHECK(close(first) == 0 && close(second) == 0 && close(listening) == 0 && unlink(path) == 0);
}

/* A child that holds both kinds of lock until it is killed. */
static void hold(void) {
    int told[2];
    char done;
    CHECK(pipe(told) == 0);
    holder = fork();
    if (holder == 0) {
        int fd = open("locked", O_RDWR);
        struct flock range = {.l_type = F_WRLCK};
        CHECK(flock(fd, LOCK_EX) == 0 && fcntl(fd, F_SETLK, &range) == 0);
        CHECK(write(told[1], "x", 1) == 1);
        for (;;) pause();
    }
    CHECK(read(told[0], &done, 1) == 1);
    close(told[0]);
    close(told[1]);
}

static void locks(void) {
    int fd = open("locked", O_RDWR | O_CREAT, 0600);
    struct flock range = {.l_type = F_WRLCK};
    hold();
    BOTH("flock", CALL(flock, fd, LOCK_EX), ends_the_holder);
    CHECK(flock(fd, LOCK_UN) == 0);
    hold();
    BOTH("range", CALL(fcntl, fd, F_SETLKW, &range), ends_the_holder);
    close(fd);
}

int main(void) {
    char outside[] = "/tmp/interrupted-XXXXXX", path[64];
    pipes("pipe");
    connections("socket");
    locks();
    CHECK(mkdtemp(outside) != NULL);
    snprintf(path, sizeof path, "%s/pipe", outside);
    printf("outside\n");
    pipes(path);
    snprintf(path, sizeof path, "%s/socket", outside);
    connections(path);
    CHECK(rmdir(outside) == 0);
    return 0;
}
