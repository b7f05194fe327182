/* Asynchronous I/O on the directory of argv[1] and on a file of the kernel's (argv[2]), in one
   list: each outcome is printed. */
#include <aio.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>

#include "check.h"

#define BYTES 70000
static char out[4][BYTES], in[4][BYTES];
static volatile sig_atomic_t signals, value_seen, code_seen;
static int called;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t came = PTHREAD_COND_INITIALIZER;

static void on_signal(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    signals++;
    value_seen = info->si_value.sival_int;
    code_seen = info->si_code;
}

static void on_thread(union sigval value) {
    pthread_mutex_lock(&lock);
    called += value.sival_int;
    pthread_cond_signal(&came);
    pthread_mutex_unlock(&lock);
}

static void wait_for(const struct aiocb *request) {
    while (aio_error(request) == EINPROGRESS)
        CHECK(aio_suspend(&request, 1, NULL) == 0 || errno == EINTR);
}

static struct aiocb ask(int fd, void *buffer, size_t bytes, off_t offset) {
    struct aiocb request = {.aio_fildes = fd, .aio_buf = buffer, .aio_nbytes = bytes};
    request.aio_offset = offset;
    request.aio_sigevent.sigev_notify = SIGEV_NONE;
    return request;
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    char path[4096];
    snprintf(path, sizeof path, "%s/asynchronous", arguments[1]);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    int plain = open(arguments[2], O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0 && plain >= 0);
    for (int i = 0; i < 4; i++) memset(out[i], 'a' + i, BYTES);

    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    struct aiocb one = ask(fd, out[0], BYTES, 0);
    one.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
    one.aio_sigevent.sigev_signo = SIGUSR1;
    one.aio_sigevent.sigev_value.sival_int = 42;
    CHECK(aio_write(&one) == 0);
    wait_for(&one);
    printf("write: %d %zd\n", aio_error(&one), aio_return(&one));
    for (int i = 0; i < 60000 && !signals; i++) usleep(1000);
    printf("signal: %d value %d asyncio %d\n", signals, value_seen, code_seen == SI_ASYNCIO);

    struct aiocb two = ask(fd, out[1], BYTES, BYTES);
    two.aio_sigevent.sigev_notify = SIGEV_THREAD;
    two.aio_sigevent.sigev_notify_function = on_thread;
    two.aio_sigevent.sigev_value.sival_int = 7;
    CHECK(aio_write(&two) == 0);
    pthread_mutex_lock(&lock);
    while (!called) pthread_cond_wait(&came, &lock);
    pthread_mutex_unlock(&lock);
    printf("thread: %d, %zd\n", called, aio_return(&two));

    struct aiocb safe = ask(fd, NULL, 0, 0);
    CHECK(aio_fsync(O_SYNC, &safe) == 0);
    wait_for(&safe);
    printf("fsync: %d %zd\n", aio_error(&safe), aio_return(&safe));
    errno = 0;
    int told = aio_fsync(12345, &safe);
    printf("fsync of nothing known: %d %d\n", told, errno);
    printf("cancel: %d %d\n", aio_cancel(fd, &one) == AIO_ALLDONE,
           aio_cancel(fd, NULL) == AIO_ALLDONE);

    struct aiocb all[5] = {ask(fd, out[2], BYTES, 2 * BYTES), ask(plain, out[3], BYTES, 0),
                           ask(fd, in[0], BYTES, 0), ask(fd, NULL, 0, 0),
                           ask(fd, in[1], BYTES, BYTES)};
    struct aiocb *list[6] = {&all[0], &all[1], NULL, &all[2], &all[3], &all[4]};
    all[0].aio_lio_opcode = all[1].aio_lio_opcode = LIO_WRITE;
    all[2].aio_lio_opcode = all[4].aio_lio_opcode = LIO_READ;
    all[3].aio_lio_opcode = LIO_NOP;
    CHECK(lio_listio(LIO_WAIT, list, 6, NULL) == 0);
    for (int i = 0; i < 5; i++)
        if (i != 3) printf("list %d: %d %zd\n", i, aio_error(&all[i]), aio_return(&all[i]));
    printf("same: %d %d\n", !memcmp(in[0], out[0], BYTES), !memcmp(in[1], out[1], BYTES));

    /* In the background, and one signal for all of them. */
    signals = 0;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    event.sigev_value.sival_int = 43;
    struct aiocb *again[2] = {&all[2], &all[1]};
    CHECK(lio_listio(LIO_NOWAIT, again, 2, &event) == 0);
    for (int i = 0; i < 60000 && !signals; i++) usleep(1000);
    printf("signal: %d value %d\n", signals, value_seen);
    CHECK(lio_listio(LIO_NOWAIT, again, 1, &event) == 0);
    for (int i = 0; i < 60000 && signals < 2; i++) usleep(1000);
    printf("signal: %d value %d\n", signals, value_seen);

    /* What fails says so where it is asked. */
    int reader = open(path, O_RDONLY);
    struct aiocb bad = ask(reader, out[0], 10, 0);
    told = aio_write(&bad);
    wait_for(&bad);
    int error = aio_error(&bad);
    printf("not open for writing: %d %d %zd\n", told, error, aio_return(&bad));
    bad.aio_lio_opcode = LIO_WRITE;
    struct aiocb *failing[1] = {&bad};
    errno = 0;
    told = lio_listio(LIO_WAIT, failing, 1, NULL);
    printf("list that fails: %d %d\n", told, errno == EIO);
    bad = ask(fd, out[0], 10, 0);
    bad.aio_reqprio = -1;
    errno = 0;
    told = aio_write(&bad);
    printf("bad priority: %d %d\n", told, errno == EINVAL);
    bad = ask(fd, in[0], 10, -5);
    told = aio_read(&bad);
    wait_for(&bad);
    error = aio_error(&bad);
    printf("before the start: %d %d %zd\n", told, error, aio_return(&bad));
    int appender = open(path, O_WRONLY | O_APPEND);
    struct aiocb end = ask(appender, out[3], 100, 5);
    CHECK(aio_write(&end) == 0);
    wait_for(&end);
    struct stat stat;
    CHECK(fstat(fd, &stat) == 0);
    printf("appended: %zd, size %lld\n", aio_return(&end), (long long)stat.st_size);
    return 0;
}
