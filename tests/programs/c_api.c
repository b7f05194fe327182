/* Every call of terral.h, used well and used badly. The only argument: the instance's directory. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "terral_check.h"

enum { THREADS = 4, RECORDS = 200, RECORD = 777 };

static terral_t *t;
static char block[300000];
static char back[300000];

static void connects(const char *instance) {
    CHECK(strcmp(terral_error(), "") == 0);
    NONE(terral_connect("/nowhere/at/all"), ENOTCONN);
    CHECK(strstr(terral_error(), "/nowhere/at/all") != NULL);
    NONE(terral_connect("no-such-instance"), ENOTCONN);
    NONE(terral_connect(""), EINVAL);
    unsetenv("TERRAL_INSTANCE");
    NONE(terral_connect(NULL), ENOTCONN);
    CHECK(strstr(terral_error(), "TERRAL_INSTANCE") != NULL);
    /* More often than a server has sessions. */
    for (int i = 0; i < 2000; i++) {
        t = terral_connect(instance);
        CHECK(t != NULL);
        terral_disconnect(t);
    }
    terral_disconnect(NULL);
    umask(027);
    t = terral_connect(instance);
    CHECK(t != NULL);
}

static void reads_and_writes(void) {
    terral_file_t *f = terral_open(t, "data", O_RDWR | O_CREAT | O_EXCL, 0666);
    CHECK(f != NULL);
    NONE(terral_open(t, "/./data/", O_RDWR | O_CREAT | O_EXCL, 0666), EEXIST);
    CHECK(terral_write(f, block, sizeof block) == (ssize_t)sizeof block);
    CHECK(terral_seek(f, 0, SEEK_CUR) == (int64_t)sizeof block);
    CHECK(terral_read(f, back, 10) == 0);
    CHECK(terral_seek(f, 0, SEEK_SET) == 0);
    CHECK(terral_read(f, back, sizeof back) == (ssize_t)sizeof back);
    CHECK(memcmp(block, back, sizeof back) == 0);
    CHECK(terral_pread(f, back, 1000, 12345) == 1000 && memcmp(back, block + 12345, 1000) == 0);
    CHECK(terral_pread(f, back, 1000, sizeof block - 10) == 10);
    CHECK(terral_pread(f, back, 1000, INT64_MAX) == 0);
    CHECK(terral_pwrite(f, "hello", 5, 4094) == 5);
    CHECK(terral_pread(f, back, 7, 4093) == 7 && memcmp(back + 1, "hello", 5) == 0);
    CHECK(terral_seek(f, -5, SEEK_END) == (int64_t)sizeof block - 5);
    CHECK(terral_seek(f, 2, SEEK_CUR) == (int64_t)sizeof block - 3);
    FAILS(terral_pwrite(f, "x", 1, INT64_MAX), EFBIG);
    CHECK(terral_seek(f, INT64_MAX, SEEK_SET) == INT64_MAX);
    CHECK(terral_read(f, back, 1) == 0);
    FAILS(terral_write(f, "x", 1), EFBIG);
    FAILS(terral_seek(f, 1, SEEK_CUR), EINVAL);
    CHECK(terral_ftruncate(f, 4096) == 0);
    CHECK(terral_truncate(t, "data", 5000) == 0);
    struct terral_attributes a;
    CHECK(terral_fstat(f, &a) == 0 && a.size_bytes == 5000 && a.mode == (S_IFREG | 0640));
    CHECK(terral_sync(f) == 0);
    CHECK(terral_close(f) == 0);
    f = terral_open(t, "data", O_RDONLY, 0);
    CHECK(f != NULL);
    FAILS(terral_write(f, "x", 1), EBADF);
    FAILS(terral_append(f, "x", 1), EBADF);
    FAILS(terral_ftruncate(f, 0), EBADF);
    CHECK(terral_close(f) == 0);
    CHECK(terral_unlink(t, "data") == 0);
}

static void vectors(void) {
    terral_file_t *f = terral_open(t, "vectors", O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(f != NULL);
    struct iovec out[3] = {{block, 5}, {NULL, 0}, {block + 5, 100000}};
    CHECK(terral_writev(f, out, 3) == 100005);
    CHECK(terral_pwritev(f, out, 1, 200000) == 5);
    struct iovec in[2] = {{back, 50000}, {back + 50000, 250000}};
    CHECK(terral_seek(f, 0, SEEK_SET) == 0);
    CHECK(terral_readv(f, in, 2) == 200005);
    CHECK(memcmp(back, block, 100005) == 0 && back[150000] == 0 && back[200004] == block[4]);
    CHECK(terral_preadv(f, in, 2, 5) == 200000 && memcmp(back, block + 5, 100000) == 0);
    CHECK(terral_writev(f, NULL, 0) == 0 && terral_readv(f, NULL, 0) == 0);
    FAILS(terral_writev(f, NULL, 1), EINVAL);
    FAILS(terral_writev(f, out, -1), EINVAL);
    FAILS(terral_readv(f, in, 1025), EINVAL);
    FAILS(terral_readv(f, in, INT_MAX), EINVAL);
    FAILS(terral_preadv(f, in, 2, -1), EINVAL);
    struct iovec bad[2] = {{block, 5}, {NULL, 1}};
    FAILS(terral_pwritev(f, bad, 2, 0), EINVAL);
    bad[1].iov_base = block;
    bad[1].iov_len = SIZE_MAX - 4;
    FAILS(terral_writev(f, bad, 2), EINVAL);
    CHECK(terral_close(f) == 0);
}

static void *append_records(void *number) {
    char record[RECORD];
    memset(record, 'a' + (int)(intptr_t)number, sizeof record);
    terral_file_t *f = terral_open(t, "log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    CHECK(f != NULL);
    for (int i = 0; i < RECORDS; i++) {
        struct iovec halves[2] = {{record, 300}, {record + 300, RECORD - 300}};
        ssize_t moved = i % 3 == 0   ? terral_append(f, record, sizeof record)
                        : i % 3 == 1 ? terral_write(f, record, sizeof record)
                                     : terral_writev(f, halves, 2);
        CHECK(moved == RECORD);
    }
    CHECK(terral_close(f) == 0);
    return NULL;
}

static void appends(void) {
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, append_records, (void *)i) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    terral_file_t *f = terral_open(t, "log", O_RDWR | O_APPEND, 0);
    CHECK(f != NULL);
    int counts[THREADS] = {0};
    char record[RECORD];
    while (terral_read(f, record, sizeof record) == RECORD) {
        for (int i = 0; i < RECORD; i++) {
            CHECK(record[i] == record[0]);
        }
        counts[record[0] - 'a']++;
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(counts[i] == RECORDS);
    }
    /* At the offset that was asked for, though the file appends. */
    CHECK(terral_pwrite(f, "zz", 2, 0) == 2 && terral_pread(f, record, 3, 0) == 3);
    CHECK(record[0] == 'z' && record[1] == 'z' && record[2] != 'z');
    CHECK(terral_seek(f, 0, SEEK_END) == (int64_t)THREADS * RECORDS * RECORD);
    CHECK(terral_close(f) == 0);
}

static int note(void *context, const char *name, uint32_t mode) {
    char *seen = context;
    strcat(seen, name);
    strcat(seen, mode == S_IFDIR ? "/ " : " ");
    return strcmp(name, "stop") == 0;
}

static void names(void) {
    struct terral_attributes a;
    char seen[100] = "";
    CHECK(terral_mkdir(t, "d", 0777) == 0 && terral_mkdir(t, "/d//sub", 0700) == 0);
    FAILS(terral_mkdir(t, "d", 0777), EEXIST);
    FAILS(terral_mkdir(t, "none/sub", 0777), ENOENT);
    CHECK(terral_stat(t, "d", &a) == 0 && a.mode == (S_IFDIR | 0750) && a.reserved == 0);
    CHECK(terral_stat(t, "", &a) == 0 && S_ISDIR(a.mode) && a.links >= 2);
    terral_file_t *f = terral_open(t, "d/b", O_WRONLY | O_CREAT, 0644);
    CHECK(f != NULL && terral_write(f, "b", 1) == 1 && terral_close(f) == 0);
    CHECK(terral_rename(t, "d/b", "d/a") == 0);
    FAILS(terral_rename(t, "d/b", "d/a"), ENOENT);
    CHECK(terral_stat(t, "d/a", &a) == 0 && a.size_bytes == 1 && a.links == 1);
    CHECK(a.uid == geteuid() && a.modified_ns > UINT64_C(1000000000) * 1600000000);
    CHECK(terral_list(t, "d", note, seen) == 0 && strcmp(seen, "a sub/ ") == 0);
    CHECK(terral_rename(t, "d/a", "d/stop") == 0);
    seen[0] = '\0';
    CHECK(terral_list(t, "d/", note, seen) == 1 && strcmp(seen, "stop ") == 0);
    FAILS(terral_list(t, "d/stop", note, seen), ENOTDIR);
    FAILS(terral_rmdir(t, "d"), ENOTEMPTY);
    FAILS(terral_rmdir(t, "d/stop"), ENOTDIR);
    FAILS(terral_unlink(t, "d/sub"), EISDIR);
    FAILS(terral_unlink(t, "d/../d/stop"), EINVAL);
    NONE(terral_open(t, "d", O_WRONLY, 0), EISDIR);
    NONE(terral_open(t, "d/stop", O_RDONLY | O_DIRECTORY, 0), ENOTDIR);
    f = terral_open(t, "d", O_RDONLY | O_DIRECTORY, 0);
    CHECK(f != NULL && terral_fstat(f, &a) == 0 && S_ISDIR(a.mode) && terral_sync(f) == 0);
    FAILS(terral_read(f, back, 1), EISDIR);
    CHECK(terral_close(f) == 0);
    f = terral_open(t, "d/stop", O_RDONLY, 0);
    CHECK(f != NULL && terral_unlink(t, "d/stop") == 0);
    CHECK(terral_read(f, back, 10) == 1 && terral_close(f) == 0);
    CHECK(terral_rmdir(t, "d/sub") == 0 && terral_rmdir(t, "d") == 0);
    char path[5001];
    memset(path, 'n', 5000);
    path[5000] = '\0';
    FAILS(terral_stat(t, path, &a), ENAMETOOLONG);
    for (int i = 200; i < 5000; i += 200) {
        path[i] = '/';
    }
    FAILS(terral_unlink(t, path), ENAMETOOLONG);
}

static void nonsense(void) {
    struct terral_attributes a;
    FAILS(terral_stat(NULL, "x", &a), EINVAL);
    FAILS(terral_stat(t, NULL, &a), EINVAL);
    FAILS(terral_stat(t, "", NULL), EINVAL);
    FAILS(terral_unlink(NULL, NULL), EINVAL);
    FAILS(terral_rename(t, "x", NULL), EINVAL);
    FAILS(terral_rename(t, NULL, "x"), EINVAL);
    FAILS(terral_mkdir(t, NULL, 0), EINVAL);
    FAILS(terral_rmdir(NULL, "x"), EINVAL);
    FAILS(terral_truncate(t, "x", -1), EINVAL);
    FAILS(terral_list(t, "", NULL, NULL), EINVAL);
    NONE(terral_open(NULL, "x", O_RDONLY, 0), EINVAL);
    NONE(terral_open(t, NULL, O_RDONLY, 0), EINVAL);
    NONE(terral_open(t, "x", O_ACCMODE, 0), EINVAL);
    NONE(terral_open(t, "x", O_RDONLY | O_TRUNC, 0), EINVAL);
    NONE(terral_open(t, "x", O_RDWR | O_SYNC, 0), EINVAL);
    NONE(terral_open(t, "x", -1, 0), EINVAL);
    NONE(terral_open(t, "x", O_RDONLY, 0), ENOENT);
    FAILS(terral_close(NULL), EINVAL);
    FAILS(terral_read(NULL, back, 1), EINVAL);
    FAILS(terral_write(NULL, NULL, SIZE_MAX), EINVAL);
    FAILS(terral_append(NULL, back, 1), EINVAL);
    FAILS(terral_readv(NULL, NULL, 0), EINVAL);
    FAILS(terral_writev(NULL, NULL, 0), EINVAL);
    FAILS(terral_fstat(NULL, &a), EINVAL);
    FAILS(terral_ftruncate(NULL, 0), EINVAL);
    FAILS(terral_sync(NULL), EINVAL);
    FAILS(terral_seek(NULL, 0, SEEK_SET), EINVAL);

    terral_file_t *f = terral_open(t, "nonsense", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    CHECK(f != NULL);
    FAILS(terral_read(f, NULL, 1), EINVAL);
    FAILS(terral_read(f, back, SIZE_MAX), EINVAL);
    FAILS(terral_read(f, back, SIZE_MAX / 2), EINVAL);
    FAILS(terral_write(f, NULL, 1), EINVAL);
    FAILS(terral_write(f, back, SIZE_MAX), EINVAL);
    FAILS(terral_append(f, back, SIZE_MAX / 4), EINVAL);
    FAILS(terral_pread(f, back, 1, -1), EINVAL);
    FAILS(terral_pwrite(f, back, 1, INT64_MIN), EINVAL);
    FAILS(terral_seek(f, -1, SEEK_SET), EINVAL);
    FAILS(terral_seek(f, INT64_MIN, SEEK_END), EINVAL);
    FAILS(terral_seek(f, 0, 77), EINVAL);
    FAILS(terral_ftruncate(f, -1), EINVAL);
    FAILS(terral_fstat(f, NULL), EINVAL);
    CHECK(terral_read(f, NULL, 0) == 0 && terral_write(f, NULL, 0) == 0);
    CHECK(terral_append(f, NULL, 0) == 0);
    CHECK(terral_fstat(f, &a) == 0 && a.size_bytes == 0);
    CHECK(terral_close(f) == 0);
}

/* A child uses what its parent opened, opens its own, and leaves the parent's open. */
static void forks(void) {
    terral_file_t *f = terral_open(t, "shared", O_RDWR | O_CREAT, 0644);
    CHECK(f != NULL && terral_write(f, "parent ", 7) == 7);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(terral_write(f, "child ", 6) == 6);
        CHECK(terral_close(f) == 0);
        terral_file_t *own = terral_open(t, "own", O_WRONLY | O_CREAT, 0644);
        CHECK(own != NULL && terral_write(own, "own", 3) == 3 && terral_close(own) == 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(terral_write(f, "parent", 6) == 6);
    CHECK(terral_pread(f, back, 100, 0) == 19 && memcmp(back, "parent child parent", 19) == 0);
    CHECK(terral_close(f) == 0);
    struct terral_attributes a;
    CHECK(terral_stat(t, "own", &a) == 0 && a.size_bytes == 3);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    CHECK(sizeof(struct terral_attributes) == 64);
    for (size_t i = 0; i < sizeof block; i++) {
        block[i] = (char)(i * 31 + i / 4096);
    }
    connects(arguments[1]);
    reads_and_writes();
    vectors();
    appends();
    names();
    nonsense();
    forks();
    terral_file_t *f = terral_open(t, "shared", O_RDONLY, 0);
    CHECK(f != NULL);
    terral_disconnect(t);
    CHECK(terral_read(f, back, 6) == 6 && terral_close(f) == 0);
    puts("c_api: all well");
    return 0;
}
