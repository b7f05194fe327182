/* Arguments that make no sense, or nearly none: flags nobody knows, vectors, offsets, times. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/openat2.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

#include "told.h"

static char room[70000];

static void names(void) {
    struct stat status;
    struct statx more;
    struct timespec times[2] = {{1, 0}, {2, 0}};
    static const int flags[] = {
        0, AT_SYMLINK_NOFOLLOW, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH, AT_NO_AUTOMOUNT, AT_EACCESS,
        AT_REMOVEDIR, AT_STATX_FORCE_SYNC, AT_STATX_DONT_SYNC, AT_STATX_SYNC_TYPE, 0x8000, 1, -1,
    };
    for (unsigned i = 0; i < sizeof flags / sizeof *flags; i++) {
        int flag = flags[i];
        printf("flag %x\n", flag);
        TELL(fstatat(AT_FDCWD, "file", &status, flag));
        TELL(statx(AT_FDCWD, "file", flag, STATX_BASIC_STATS, &more));
        TELL(faccessat(AT_FDCWD, "file", R_OK, flag));
        TELL(syscall(SYS_faccessat2, AT_FDCWD, "file", R_OK, flag));
        TELL(fchownat(AT_FDCWD, "file", -1, -1, flag));
        if (flag != AT_EMPTY_PATH) {
            TELL(fchmodat(AT_FDCWD, "file", 0644, flag)); /* Later glibcs know this one, too. */
        }
        TELL(syscall(452 /* SYS_fchmodat2 */, AT_FDCWD, "file", 0644, flag));
        TELL(utimensat(AT_FDCWD, "file", times, flag));
        TELL(linkat(AT_FDCWD, "file", AT_FDCWD, "linked", flag));
        TELL(unlinkat(AT_FDCWD, "linked", flag));
        unlink("linked");
        TELL(mkdir("made", 0755));
        TELL(unlinkat(AT_FDCWD, "made", flag));
        rmdir("made");
    }
    TELL(statx(AT_FDCWD, "file", 0, 0x80000000u, &more));
    TELL(statx(AT_FDCWD, "file", 0, 0, &more));
    TELL(statx(AT_FDCWD, "file", 0, STATX_ALL, &more));
    printf("mask %x\n", more.stx_mask & STATX_BASIC_STATS);
    TELL(statx(AT_FDCWD, "missing", 0, 0x80000000u, &more));
    TELL(access("file", 8));
    TELL(access("file", -1));
    TELL(access("missing", 8));
    TELL(faccessat(AT_FDCWD, "file", 8, 0));
    for (unsigned flag = 0; flag < 16; flag++) {
        if ((flag & ~RENAME_NOREPLACE) == RENAME_WHITEOUT) {
            continue;
        }
        printf("rename %x\n", flag);
        TELL(renameat2(AT_FDCWD, "file", AT_FDCWD, "other", flag));
        TELL(renameat2(AT_FDCWD, "missing", AT_FDCWD, "nothing", flag));
        TELL(renameat2(AT_FDCWD, "file", AT_FDCWD, "nothing/x", flag));
        TELL(access("file", F_OK));
        TELL(access("other", F_OK));
        close(open("file", O_WRONLY | O_CREAT, 0644));
        close(open("other", O_WRONLY | O_CREAT, 0644));
    }
    TELL(renameat2(AT_FDCWD, "file", AT_FDCWD, "file", 0));
    TELL(renameat2(AT_FDCWD, "file", AT_FDCWD, "file", RENAME_NOREPLACE));
    TELL(renameat2(AT_FDCWD, "file", AT_FDCWD, "file", RENAME_EXCHANGE));
    TELL(renameat2(AT_FDCWD, "file", AT_FDCWD, ".", 0));
    TELL(renameat2(AT_FDCWD, ".", AT_FDCWD, "x", 0));
    TELL(renameat2(AT_FDCWD, "directory", AT_FDCWD, "directory/below", 0));
    TELL(renameat2(AT_FDCWD, "file", AT_FDCWD, "directory", 0));
    TELL(renameat2(AT_FDCWD, "directory", AT_FDCWD, "file", 0));
    TELL(renameat2(AT_FDCWD, "file", AT_FDCWD, "directory", RENAME_EXCHANGE));
    TELL(renameat2(AT_FDCWD, "file", AT_FDCWD, "directory", RENAME_EXCHANGE));
    TELL(rename("file/", "x"));
    TELL(rename("file", "x/"));
    TELL(rename("directory/", "x/"));
    TELL(rename("x", "directory"));
    TELL(mknod("node", S_IFREG | 0644, 0));
    TELL(mknod("node", S_IFREG | 0644, 0));
    TELL(mknod("untyped", 0644, 0));
    TELL(mknod("directory2", S_IFDIR | 0644, 0));
    TELL(chmod("file", 0100644 | 07000));
    TELL(stat("file", &status));
    printf("%o\n", status.st_mode);
    TELL(mkdir("directory3", 07777));
    TELL(stat("directory3", &status));
    printf("%o\n", status.st_mode);
}

static void openings(void) {
    struct open_how how = {.flags = O_RDONLY};
    TELL(close(syscall(SYS_openat2, AT_FDCWD, "file", &how, sizeof how)));
    how.flags = O_RDONLY | 0x40000000;
    TELL(syscall(SYS_openat2, AT_FDCWD, "file", &how, sizeof how));
    how.flags = 1UL << 40;
    TELL(syscall(SYS_openat2, AT_FDCWD, "file", &how, sizeof how));
    how = (struct open_how){.flags = O_RDONLY, .mode = 0644};
    TELL(syscall(SYS_openat2, AT_FDCWD, "file", &how, sizeof how));
    how = (struct open_how){.flags = O_CREAT, .mode = 0170644};
    TELL(syscall(SYS_openat2, AT_FDCWD, "file", &how, sizeof how));
    how = (struct open_how){.flags = O_PATH | O_RDWR};
    TELL(syscall(SYS_openat2, AT_FDCWD, "file", &how, sizeof how));
    how = (struct open_how){.resolve = 0x1000};
    TELL(syscall(SYS_openat2, AT_FDCWD, "file", &how, sizeof how));
    how = (struct open_how){0};
    TELL(syscall(SYS_openat2, AT_FDCWD, "file", &how, 8));
    TELL(syscall(SYS_openat2, AT_FDCWD, "file", NULL, sizeof how));
}

static void times(int fd) {
    static const long seconds[] = {5, 1L << 33, 0};
    static const long nanoseconds[] = {0, -1, 1000000000, 999999999, UTIME_OMIT, UTIME_NOW};
    struct stat status;
    for (unsigned i = 0; i < 3; i++) {
        for (unsigned j = 0; j < 6; j++) {
            struct timespec both[2] = {{seconds[i], nanoseconds[j]}, {seconds[i], nanoseconds[j]}};
            printf("%ld %ld\n", seconds[i], nanoseconds[j]);
            TELL(futimens(fd, both));
            TELL(utimensat(AT_FDCWD, "file", both, 0));
            TELL(utimensat(AT_FDCWD, "missing", both, 0));
            MUST(fstat(fd, &status) == 0);
            if (nanoseconds[j] != UTIME_NOW && nanoseconds[j] != UTIME_OMIT) {
                printf("%ld %ld\n", status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
            }
        }
    }
    struct timespec mixed[2] = {{7, UTIME_OMIT}, {8, 9}};
    TELL(futimens(fd, mixed));
    MUST(fstat(fd, &status) == 0);
    printf("%ld %ld\n", status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
    struct timeval wrong[2] = {{1, 1000000}, {1, 0}}, negative[2] = {{1, -1}, {1, 0}};
    TELL(utimes("file", wrong));
    TELL(utimes("file", negative));
    TELL(futimes(fd, wrong));
    TELL(utimensat(AT_FDCWD, NULL, mixed, 0));
    TELL(utimensat(fd, NULL, mixed, AT_SYMLINK_NOFOLLOW));
    TELL(utime("file", NULL));
    TELL(syscall(SYS_utimensat, fd, NULL, mixed, 0));
}

static void vectors(int fd) {
    static struct iovec many[1030];
    static char one[1030];
    static const int counts[] = {-1, 0, 1, 2, 1023, 1024, 1025};
    for (int i = 0; i < 1030; i++) {
        many[i] = (struct iovec){&one[i], 1};
    }
    for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++) {
        int count = counts[i];
        printf("vector of %d\n", count);
        TELL(writev(fd, many, count));
        TELL(pwritev(fd, many, count, 0));
        TELL(lseek(fd, 0, SEEK_SET));
        TELL(readv(fd, many, count));
        TELL(preadv(fd, many, count, 0));
        TELL(pwritev2(fd, many, count, 0, 0));
        TELL(preadv2(fd, many, count, -1, 0));
    }
    struct iovec wrong[2] = {{one, 10}, {one, (size_t)-1}};
    TELL(writev(fd, wrong, 2));
    TELL(readv(fd, wrong, 2));
    wrong[1].iov_len = (size_t)SSIZE_MAX;
    TELL(pwritev(fd, wrong, 2, 0));
    TELL(preadv(fd, wrong, 1, -1));
    TELL(pwritev(fd, wrong, 1, -1));
    TELL(preadv(fd, wrong, 1, INT64_MAX));
    TELL(preadv(fd, wrong, 1, INT64_MIN));
    TELL(preadv2(fd, wrong, 1, -2, 0));
    TELL(readv(fd, NULL, 0));
    TELL(readv(fd, NULL, 1));
}

static void offsets(int fd) {
    static const off_t all[] = {-1, INT64_MIN, INT64_MAX, INT64_MAX - 10, (off_t)1 << 62};
    for (unsigned i = 0; i < 5; i++) {
        printf("at %ld\n", (long)all[i]);
        TELL(pread(fd, room, 10, all[i]));
        TELL(pread(fd, room, 0, all[i]));
        TELL(pwrite(fd, room, 0, all[i]));
        TELL(posix_fadvise(fd, all[i], 10, POSIX_FADV_WILLNEED));
        TELL(readahead(fd, all[i], 10));
        TELL(sync_file_range(fd, all[i], 10, 0));
        if (all[i] < 0 || all[i] == INT64_MAX) {
            TELL(mmap(NULL, 10, PROT_READ, MAP_SHARED, fd, all[i]) == MAP_FAILED);
        }
        if (all[i] < 0 || all[i] == INT64_MAX) {
            TELL(pwrite(fd, room, 10, all[i]));
        }
        if (all[i] < 0) {
            TELL(ftruncate(fd, all[i]));
            TELL(truncate("file", all[i]));
            TELL(truncate("missing", all[i]));
            TELL(fallocate(fd, 0, all[i], 10));
        }
        TELL(fallocate(fd, 0, 0, all[i] < 0 ? all[i] : -5));
    }
    TELL(fallocate(fd, 0, INT64_MAX, 10));
    TELL(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, INT64_MAX - 20, 10));
    TELL(sync_file_range(fd, 0, 10, 0x100));
    TELL(sync_file_range(fd, 0, -1, 0));
    TELL(posix_fadvise(fd, 0, 10, 77));
    TELL(posix_fadvise(fd, 0, -1, 0));
    for (int mode = 0; mode < 0x100; mode++) {
        if ((mode & ~FALLOC_FL_KEEP_SIZE) == FALLOC_FL_ZERO_RANGE || mode == FALLOC_FL_KEEP_SIZE) {
            continue; /* One is offered that tmpfs has not, and the other way round. */
        }
        errno = 0;
        int done = fallocate(fd, mode, 4096, 4096);
        printf("%x: %s\n", mode, done < 0 ? strerrorname_np(errno) : "");
    }
}

static void directories(void) {
    int fd = open("directory", O_RDONLY);
    for (int length = 0; length < 60; length++) {
        lseek(fd, 0, SEEK_SET);
        errno = 0;
        long done = syscall(SYS_getdents64, fd, room, length);
        printf("%d: %d %s\n", length, done > 0, done < 0 ? strerrorname_np(errno) : "");
    }
    TELL(lseek(fd, 0, SEEK_SET));
    TELL(read(fd, room, 10));
    TELL(write(fd, room, 10));
    TELL(lseek(fd, -1, SEEK_SET));
    TELL(ftruncate(fd, 0));
    TELL(fallocate(fd, 0, 0, 10));
    TELL(mmap(NULL, 10, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
    TELL(posix_fadvise(fd, 0, 0, 0));
    TELL(sync_file_range(fd, 0, 0, 0));
    TELL(fsync(fd));
    TELL(flock(fd, LOCK_EX | LOCK_NB));
    TELL(flock(fd, LOCK_UN));
    TELL(flock(fd, 77));
    TELL(flock(fd, 0));
    close(fd);
}

static void maps(int fd) {
    int reader = open("file", O_RDONLY), writer = open("file", O_WRONLY);
    MUST(ftruncate(fd, 10000) == 0);
#define MAP(length, rights, flags, fd, at)                                                        \
    TELL(mmap(NULL, length, rights, flags, fd, at) == MAP_FAILED)
    MAP(0, PROT_READ, MAP_SHARED, fd, 0);
    MAP(10, PROT_READ, 0, fd, 0);
    MAP(10, PROT_READ, MAP_SHARED | MAP_PRIVATE, fd, 0);
    MAP(10, PROT_READ, MAP_SHARED, fd, 1);
    MAP(10, PROT_READ, MAP_SHARED, fd, -4096);
    MAP((size_t)-1, PROT_READ, MAP_SHARED, fd, 0);
    MAP((size_t)1 << 62, PROT_READ, MAP_PRIVATE, fd, 0);
    MAP(10, PROT_READ, MAP_SHARED, writer, 0);
    MAP(10, PROT_WRITE, MAP_SHARED, writer, 0);
    MAP(10, PROT_WRITE, MAP_SHARED, reader, 0);
    MAP(10, PROT_READ | PROT_WRITE, MAP_PRIVATE, reader, 0);
    MAP(10, PROT_READ | PROT_WRITE, MAP_PRIVATE, writer, 0);
    MAP(10, PROT_NONE, MAP_SHARED, reader, 0);
    MAP(10, PROT_NONE, MAP_SHARED, writer, 0);
    MAP(10, PROT_READ, MAP_SHARED_VALIDATE, fd, 0);
    MAP(10, PROT_READ, MAP_SHARED_VALIDATE | 0x8000000, fd, 0);
    MAP(10, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
    MAP(10, PROT_READ, MAP_SHARED | MAP_HUGETLB, fd, 0);
    MAP(10, PROT_READ, MAP_SHARED | MAP_POPULATE | MAP_NORESERVE, fd, 0);
    MAP(10, PROT_READ, MAP_SHARED, -1, 0);
    MAP(10, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
    char *map = mmap(NULL, 10000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MUST(map != MAP_FAILED);
    TELL(msync(map, 10000, MS_SYNC));
    TELL(msync(map, 10000, MS_ASYNC | MS_INVALIDATE));
    TELL(msync(map, 10000, MS_SYNC | MS_ASYNC));
    TELL(msync(map, 10000, 0x100));
    TELL(msync(map + 1, 100, MS_SYNC));
    TELL(msync(map, 0, MS_SYNC));
    TELL(madvise(map, 10000, MADV_DONTNEED));
    TELL(madvise(map, 10000, MADV_WILLNEED));
    TELL(madvise(map, 10000, 9999));
    TELL(madvise(map + 1, 10000, MADV_NORMAL));
    TELL(mprotect(map, 4096, PROT_READ));
    TELL(mprotect(map, 4096, PROT_READ | PROT_WRITE));
    TELL(mprotect(map, 4096, PROT_NONE));
    TELL(mlock(map + 4096, 4096));
    TELL(munlock(map + 4096, 4096));
    TELL(munmap(map + 1, 4096));
    TELL(munmap(map, 0));
    TELL(munmap(map, 4096));
    TELL(munmap(map, 12288));
    close(reader), close(writer);
}

static void handles(int fd) {
    struct {
        struct file_handle handle;
        char more[128];
    } all = {.handle.handle_bytes = 0};
    int mount;
    TELL(name_to_handle_at(AT_FDCWD, "missing", &all.handle, &mount, 0));
    TELL(name_to_handle_at(AT_FDCWD, "file", &all.handle, &mount, 0x8000));
    TELL(name_to_handle_at(-1, "file", &all.handle, &mount, 0));
    TELL(fsetxattr(fd, "user.", "x", 1, 0));
    TELL(fsetxattr(fd, "user.a", "x", 1, 8));
    TELL(fsetxattr(fd, "user.a", "x", 1, XATTR_REPLACE));
    TELL(fsetxattr(fd, "user.a", "x", 1, XATTR_CREATE));
    TELL(fsetxattr(fd, "user.a", "x", 1, XATTR_CREATE));
    TELL(fsetxattr(fd, "user.a", "xyz", 3, XATTR_REPLACE));
    TELL(fgetxattr(fd, "user.a", room, 2));
    TELL(fgetxattr(fd, "user.a", NULL, 0));
    TELL(fgetxattr(fd, "user.a", room, 100));
    TELL(flistxattr(fd, room, 2));
    TELL(flistxattr(fd, NULL, 0));
    TELL(fsetxattr(fd, "nothing", "x", 1, 0));
    TELL(fsetxattr(fd, "", "x", 1, 0));
    TELL(fgetxattr(fd, "user.missing", room, 10));
    TELL(fremovexattr(fd, "user.a"));
    TELL(fremovexattr(fd, "user.a"));
    TELL(fsetxattr(fd, "user.a", room, 65537, 0));
}

static void unnamed(void) {
    struct stat status;
    int fd = open(".", O_TMPFILE | O_RDWR, 0600);
    char link[64];
    MUST(fd >= 0);
    TELL(write(fd, "unnamed", 7));
    TELL(fstat(fd, &status));
    printf("%ld %o\n", (long)status.st_nlink, status.st_mode);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    TELL(linkat(AT_FDCWD, link, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
    TELL(linkat(fd, "", AT_FDCWD, "named", AT_EMPTY_PATH));
    TELL(linkat(fd, "", AT_FDCWD, "named2", AT_EMPTY_PATH));
    TELL(unlink("named"));
    TELL(unlink("named2"));
    close(fd);
    fd = open(".", O_TMPFILE | O_WRONLY | O_EXCL, 0600);
    TELL(linkat(fd, "", AT_FDCWD, "named4", AT_EMPTY_PATH));
    close(fd);
    fd = open("gone", O_RDWR | O_CREAT, 0600);
    unlink("gone");
    TELL(linkat(fd, "", AT_FDCWD, "named5", AT_EMPTY_PATH));
    TELL(open("missing/x", O_TMPFILE | O_RDWR, 0600));
    TELL(open("file", O_TMPFILE | O_RDWR, 0600));
    close(fd);
}

int main(void) {
    int fd = open("file", O_RDWR | O_CREAT, 0644);
    umask(022);
    MUST(fd >= 0 && write(fd, "contents", 8) == 8 && mkdir("directory", 0755) == 0);
    printf("times\n");
    times(fd);
    printf("openings\n");
    openings();
    printf("vectors\n");
    vectors(fd);
    printf("offsets\n");
    offsets(fd);
    printf("directories\n");
    directories();
    printf("maps\n");
    maps(fd);
    printf("handles\n");
    handles(fd);
    printf("unnamed\n");
    unnamed();
    printf("names\n");
    close(fd);
    close(open("file", O_RDWR | O_CREAT | O_TRUNC, 0644));
    names();
    return 0;
}
