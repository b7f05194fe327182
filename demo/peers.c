/* What demo/peers.py has done on its machines, and times: one thing a process. It says "ready",
 * waits for a line, does it, and says "ok" and when it began, was halfway and ended
 * (CLOCK_MONOTONIC, nanoseconds). All bytes are compared, after the time.
 *
 * It uses files by POSIX; compiled with -DNFS by libnfs, which stands for the kernel's NFS client:
 * eight calls of 1 MiB are under way at a time, as that client reads ahead and writes behind. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef NFS
#include <nfsc/libnfs.h>
#endif

#define CALL ((size_t)1 << 20)
#define WORDS (CALL / 8)
#define PAGE_WORDS 512

static void fail(const char *form, ...)
{
    va_list list;
    va_start(list, form);
    vprintf(form, list);
    va_end(list);
    putchar('\n');
    exit(1);
}

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* Waits for the line that begins it. */
static long long begun(void)
{
    char line[16];
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        exit(1);
    return now();
}

static uint64_t mixed(uint64_t seed, uint64_t at)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + at + 1;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* What is the same in all blocks of a seed. */
static uint64_t *block_of(uint64_t seed)
{
    uint64_t *block = aligned_alloc(4096, CALL);
    if (!block)
        fail("no memory");
    for (size_t at = 0; at < WORDS; at++)
        block[at] = mixed(seed, at);
    return block;
}

/* And what is not: a word of each page. */
static void numbered(uint64_t *block, uint64_t seed, uint64_t number)
{
    for (size_t at = 0; at < WORDS; at += PAGE_WORDS)
        block[at] = mixed(~seed, number * WORDS + at);
}

/* All is of the seed; or, where there is an older one, each word of one of them. */
static void compare(const char *bytes, size_t count, uint64_t seed, uint64_t older)
{
    uint64_t *young = block_of(seed), *old = block_of(older ? older : seed);
    for (size_t number = 0; number < count; number++) {
        const uint64_t *have = (const uint64_t *)(bytes + number * CALL);
        numbered(young, seed, number);
        if (!memcmp(have, young, CALL))
            continue;
        numbered(old, older ? older : seed, number);
        for (size_t at = 0; at < WORDS; at++)
            if (have[at] != young[at] && have[at] != old[at])
                fail("MiB %zu is not what was written, from byte %zu on", number, at * 8);
    }
}

#ifndef NFS

static char path[4096];

static const char *named(const char *place, const char *name)
{
    snprintf(path, sizeof path, "%s/%s", place, name);
    return path;
}

static void meet(const char *place)
{
    struct stat is;
    if (stat(place, &is))
        fail("%s: %s", place, strerror(errno));
}

static void put(const char *place, const char *name, size_t count, uint64_t seed, int old)
{
    uint64_t *block = block_of(seed);
    int file = open(named(place, name), old ? O_WRONLY : O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (file < 0)
        fail("open: %s", strerror(errno));
    for (size_t number = 0; number < count; number++) {
        numbered(block, seed, number);
        if (write(file, block, CALL) != (ssize_t)CALL)
            fail("write: %s", strerror(errno));
    }
    if (close(file))
        fail("close: %s", strerror(errno));
}

static void get(const char *place, const char *name, size_t count, char *bytes)
{
    int file = open(named(place, name), O_RDONLY);
    if (file < 0)
        fail("open: %s", strerror(errno));
    for (size_t number = 0; number < count; number++) {
        for (size_t have = 0; have < CALL;) {
            ssize_t got = read(file, bytes + number * CALL + have, CALL - have);
            if (got <= 0)
                fail("read: %s in MiB %zu", got ? strerror(errno) : "the end", number);
            have += (size_t)got;
        }
    }
    close(file);
}

static void make(const char *place, const char *name)
{
    int file = open(named(place, name), O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (file < 0 || close(file))
        fail("create: %s", strerror(errno));
}

static long long size_of(const char *place, const char *name)
{
    struct stat is;
    if (stat(named(place, name), &is))
        fail("stat: %s", strerror(errno));
    return S_ISREG(is.st_mode) ? (long long)is.st_size : -1;
}

static void directory(const char *place, const char *name)
{
    if (mkdir(named(place, name), 0755))
        fail("mkdir: %s", strerror(errno));
}

static void removed(const char *place, const char *name)
{
    if (unlink(named(place, name)) && (errno != EISDIR || rmdir(path)))
        fail("remove %s: %s", name, strerror(errno));
}

/* The names that there are. */
static size_t names(const char *place, size_t most, char (*into)[256])
{
    DIR *list = opendir(place);
    size_t count = 0;
    if (!list)
        fail("opendir: %s", strerror(errno));
    for (struct dirent *one; (one = readdir(list));)
        if (strcmp(one->d_name, ".") && strcmp(one->d_name, "..") && count < most)
            snprintf(into[count++], 256, "%s", one->d_name);
    closedir(list);
    return count;
}

#else

#define AHEAD 8

static struct nfs_context *nfs;
static struct nfsfh *file;
static int under_way;

/* A place is SERVER:PATH; its directory is mounted, so that a name is one question. */
static void meet(const char *place)
{
    char server[64];
    const char *colon = strchr(place, ':');
    nfs = nfs_init_context();
    if (!nfs || !colon)
        fail("libnfs: %s", place);
    snprintf(server, sizeof server, "%.*s", (int)(colon - place), place);
    if (nfs_mount(nfs, server, colon + 1))
        fail("mount: %s", nfs_get_error(nfs));
}

static char path[4096];

static const char *named(const char *name)
{
    snprintf(path, sizeof path, "/%s", name);
    return path;
}

/* Has so many or fewer under way. */
static void until(int many)
{
    while (under_way > many) {
        struct pollfd one = {.fd = nfs_get_fd(nfs), .events = (short)nfs_which_events(nfs)};
        if (poll(&one, 1, 60000) <= 0)
            fail("no answer in 60 s");
        if (nfs_service(nfs, one.revents) < 0)
            fail("libnfs: %s", nfs_get_error(nfs));
    }
}

static void wrote(int result, struct nfs_context *context, void *data, void *unused)
{
    (void)data, (void)unused;
    if (result != (int)CALL)
        fail("write: %s", nfs_get_error(context));
    under_way--;
}

static void put(const char *place, const char *name, size_t count, uint64_t seed, int old)
{
    uint64_t *blocks[AHEAD];
    (void)place;
    for (int at = 0; at < AHEAD; at++)
        blocks[at] = block_of(seed);
    int how = old ? O_WRONLY : O_WRONLY | O_CREAT | O_EXCL;
    if (nfs_open2(nfs, named(name), how, 0644, &file))
        fail("open: %s", nfs_get_error(nfs));
    for (size_t number = 0; number < count; number++) {
        uint64_t *block = blocks[number % AHEAD];
        until(AHEAD - 1);
        numbered(block, seed, number);
        if (nfs_pwrite_async(nfs, file, number * CALL, CALL, block, wrote, NULL))
            fail("write: %s", nfs_get_error(nfs));
        under_way++;
    }
    until(0);
    if (nfs_close(nfs, file))
        fail("close: %s", nfs_get_error(nfs));
}

static void got(int result, struct nfs_context *context, void *data, void *into)
{
    if (result != (int)CALL)
        fail("read: %d %s", result, nfs_get_error(context));
    memcpy(into, data, CALL);
    under_way--;
}

static void get(const char *place, const char *name, size_t count, char *bytes)
{
    (void)place;
    if (nfs_open2(nfs, named(name), O_RDONLY, 0, &file))
        fail("open: %s", nfs_get_error(nfs));
    for (size_t number = 0; number < count; number++) {
        until(AHEAD - 1);
        char *into = bytes + number * CALL;
        if (nfs_pread_async(nfs, file, number * CALL, CALL, got, into))
            fail("read: %s", nfs_get_error(nfs));
        under_way++;
    }
    until(0);
    nfs_close(nfs, file);
}

static void make(const char *place, const char *name)
{
    (void)place;
    if (nfs_open2(nfs, named(name), O_WRONLY | O_CREAT | O_EXCL, 0644, &file))
        fail("create: %s", nfs_get_error(nfs));
    if (nfs_close(nfs, file))
        fail("close: %s", nfs_get_error(nfs));
}

static long long size_of(const char *place, const char *name)
{
    struct nfs_stat_64 is;
    (void)place;
    if (nfs_stat64(nfs, named(name), &is))
        fail("stat: %s", nfs_get_error(nfs));
    return S_ISREG(is.nfs_mode) ? (long long)is.nfs_size : -1;
}

static void directory(const char *place, const char *name)
{
    (void)place;
    if (nfs_mkdir(nfs, named(name)))
        fail("mkdir: %s", nfs_get_error(nfs));
}

static void removed(const char *place, const char *name)
{
    (void)place;
    if (nfs_unlink(nfs, named(name)) && nfs_rmdir(nfs, path))
        fail("remove %s: %s", name, nfs_get_error(nfs));
}

static size_t names(const char *place, size_t most, char (*into)[256])
{
    struct nfsdir *list;
    size_t count = 0;
    (void)place;
    if (nfs_opendir(nfs, "/", &list))
        fail("opendir: %s", nfs_get_error(nfs));
    for (struct nfsdirent *one; (one = nfs_readdir(nfs, list));)
        if (strcmp(one->name, ".") && strcmp(one->name, "..") && count < most)
            snprintf(into[count++], 256, "%s", one->name);
    nfs_closedir(nfs, list);
    return count;
}

#endif

static size_t listed(const char *place, char (**into)[256])
{
    size_t most = 1 << 20;
    *into = malloc(most * sizeof **into);
    if (!*into)
        fail("no memory");
    return names(place, most, *into);
}

static void stat_all(const char *place, const char *stem, size_t count)
{
    char name[64];
    for (size_t at = 0; at < count; at++) {
        snprintf(name, sizeof name, "%s%zu", stem, at);
        if (size_of(place, name) != 0)
            fail("%s is no empty file", name);
    }
}

static void create_all(const char *place, const char *stem, size_t count)
{
    char name[64];
    for (size_t at = 0; at < count; at++) {
        snprintf(name, sizeof name, "%s%zu", stem, at);
        make(place, name);
    }
}

static void times(const char *verb, const char *place, const char *name, size_t count, char **more)
{
    int read = !strcmp(verb, "read");
    char *bytes = read ? malloc(count * CALL) : NULL;
    if (read)
        memset(bytes, 1, count * CALL);
    long long begin = begun(), middle = 0;
    if (read)
        get(place, name, count, bytes);
    else if (!strcmp(verb, "write") || !strcmp(verb, "overwrite"))
        put(place, name, count, strtoull(more[0], NULL, 10), verb[0] == 'o');
    else if (!strcmp(verb, "create"))
        create_all(place, name, count);
    else if (!strcmp(verb, "stat")) {
        stat_all(place, name, count);
        middle = now();
        stat_all(place, name, count);
    } else
        fail("%s?", verb);
    long long end = now();
    if (read) {
        uint64_t seed = strtoull(more[0], NULL, 10);
        compare(bytes, count, seed, more[1] ? strtoull(more[1], NULL, 10) : 0);
    }
    printf("ok %lld %lld %lld\n", begin, middle ? middle : end, end);
}

/* peers VERB PLACE NAME [COUNT [SEED [OLDER SEED]]] */
int main(int count, char **words)
{
    if (count < 4)
        return 2;
    const char *verb = words[1], *place = words[2], *name = words[3];
    char(*all)[256];
    meet(place);
    if (!strcmp(verb, "directory"))
        directory(place, name);
    else if (!strcmp(verb, "remove"))
        removed(place, name);
    else if (!strcmp(verb, "empty"))
        for (size_t at = listed(place, &all); at-- > 0;)
            removed(place, all[at]);
    else if (!strcmp(verb, "count"))
        printf("%zu\n", listed(place, &all));
    else if (count > 4)
        times(verb, place, name, strtoull(words[4], NULL, 10), words + 5);
    else
        return 2;
    return 0;
}
