/* Descriptors of paths only, and every call on them; flags of open; names of every length. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "told.h"

static char room[5000];

static void everything(int fd) {
    struct stat status;
    struct statx more;
    struct statfs space;
    struct statvfs vfs;
    struct iovec vector = {room, 10};
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    struct timespec times[2] = {{1, 0}, {2, 0}};
    struct pollfd polled = {fd, POLLIN, 0};
    struct epoll_event event = {EPOLLIN, {0}};
    TELL(read(fd, room, 10));
    TELL(write(fd, room, 10));
    TELL(pread(fd, room, 10, 0));
    TELL(pwrite(fd, room, 10, 0));
    TELL(readv(fd, &vector, 1));
    TELL(writev(fd, &vector, 1));
    TELL(preadv(fd, &vector, 1, 0));
    TELL(pwritev(fd, &vector, 1, 0));
    TELL(preadv2(fd, &vector, 1, 0, 0));
    TELL(pwritev2(fd, &vector, 1, 0, 0));
    TELL(lseek(fd, 0, SEEK_SET));
    TELL(fstat(fd, &status));
    TELL(statx(fd, "", AT_EMPTY_PATH, STATX_ALL, &more));
    TELL(fstatat(fd, "", &status, AT_EMPTY_PATH));
    TELL(fstatfs(fd, &space));
    TELL(fstatvfs(fd, &vfs));
    TELL(ftruncate(fd, 5));
    TELL(fallocate(fd, 0, 0, 10));
    TELL(posix_fallocate(fd, 0, 10));
    TELL(posix_fadvise(fd, 0, 0, POSIX_FADV_NORMAL));
    TELL(readahead(fd, 0, 10));
    TELL(fsync(fd));
    TELL(fdatasync(fd));
    TELL(syncfs(fd));
    TELL(sync_file_range(fd, 0, 0, 0));
    TELL(fchmod(fd, 0600));
    TELL(fchmodat(fd, "", 0600, 0));
    TELL(fchown(fd, -1, -1));
    TELL(fchownat(fd, "", -1, -1, AT_EMPTY_PATH));
    TELL(futimens(fd, times));
    TELL(utimensat(fd, "", times, AT_EMPTY_PATH));
    TELL(faccessat(fd, "", R_OK, AT_EMPTY_PATH));
    TELL(fsetxattr(fd, "user.a", "b", 1, 0));
    TELL(fgetxattr(fd, "user.a", room, 10));
    TELL(flistxattr(fd, room, 100));
    TELL(fremovexattr(fd, "user.a"));
    TELL(flock(fd, LOCK_SH));
    TELL(fcntl(fd, F_SETLK, &lock));
    TELL(fcntl(fd, F_GETLK, &lock));
    TELL(fcntl(fd, F_OFD_SETLK, &lock));
    TELL(fcntl(fd, F_GETFD));
    TELL(fcntl(fd, F_GETFL));
    TELL(fcntl(fd, F_SETFL, 0));
    TELL(ioctl(fd, FIONREAD, room));
    TELL(ioctl(fd, FIOCLEX));
    TELL(mmap(NULL, 10, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED);
    TELL(isatty(fd));
    TELL(fchdir(fd) == -1 || chdir("..") == 0);
    TELL(poll(&polled, 1, 0));
    printf("%x\n", polled.revents);
    int epoll = epoll_create1(0);
    TELL(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    close(epoll);
    TELL(sendfile(fd, fd, NULL, 1));
    TELL(copy_file_range(fd, NULL, fd, NULL, 1, 0));
    TELL(linkat(fd, "", AT_FDCWD, "linked", AT_EMPTY_PATH));
    TELL(unlink("linked"));
    TELL(openat(fd, "", O_RDONLY));
    TELL(openat(fd, "x", O_RDONLY));
    TELL(close(dup(fd)) );
    TELL(dup3(fd, fd, 0));
    TELL(dup3(fd, 100, O_APPEND));
    TELL(dup2(fd, fd) == fd);
    TELL(close(dup3(fd, 100, O_CLOEXEC)));
    TELL(syscall(SYS_getdents64, fd, room, sizeof room) == -1);
}

static void flags(void) {
    static const int all[] = {
        O_CREAT | O_DIRECTORY, O_CREAT | O_DIRECTORY | O_RDWR, O_DIRECTORY, O_DIRECTORY | O_RDWR,
        O_DIRECTORY | O_WRONLY, O_NOFOLLOW, O_PATH, O_PATH | O_NOFOLLOW, O_PATH | O_DIRECTORY,
        O_PATH | O_CREAT, O_PATH | O_TRUNC, O_PATH | O_RDWR, O_PATH | O_DIRECTORY | O_CREAT,
        O_TMPFILE, O_TMPFILE | O_RDWR, O_TMPFILE | O_WRONLY, O_TMPFILE | O_RDWR | O_CREAT,
        O_TMPFILE | O_RDWR | O_EXCL, O_EXCL, O_TRUNC, O_RDWR | O_TRUNC, O_APPEND,
        O_RDWR | O_CREAT, O_RDWR | O_CREAT | O_EXCL, O_RDONLY | O_NONBLOCK, O_NOATIME, O_NOCTTY,
        O_SYNC, O_DSYNC, O_RDWR | O_DIRECT, O_ASYNC, O_LARGEFILE, 0x40000000, (int)0x80000000,
        O_RDWR | 0x1000000, O_CREAT | O_NOFOLLOW,
    };
    static const char *names[] = {
        "file", "directory", "to-file", "to-directory", "to-nothing", "loop", "file/", "directory/",
        "to-directory/", "to-file/", "file/x", "missing", "missing/", "missing/x", ".", "..", "",
        "to-nothing/", "loop/x", "directory/.", "directory/..", "file/.", "//file", "./file",
    };
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        for (unsigned j = 0; j < sizeof names / sizeof *names; j++) {
            errno = 0;
            int fd = open(names[j][0] == '/' ? names[j] + 2 : names[j], all[i], 0644);
            int number = errno;
            printf("%s %x: %s", names[j], all[i], fd < 0 ? strerrorname_np(number) : "");
            if (fd >= 0) {
                printf("%x", fcntl(fd, F_GETFL));
                close(fd);
            }
            printf("\n");
            if (access("missing", F_OK) == 0 && unlink("missing") != 0) {
                rmdir("missing");
            }
            unlink("nothing");
        }
    }
}

static void lengths(void) {
    static char name[9000];
    struct stat status;
    for (int length = 254; length <= 257; length++) {
        memset(name, 'n', length);
        name[length] = 0;
        printf("%d\n", length);
        TELL(close(open(name, O_WRONLY | O_CREAT, 0644)));
        TELL(mkdir(name, 0755));
        TELL(stat(name, &status));
        TELL(symlink(name, "to-long"));
        TELL(stat("to-long", &status));
        TELL(rename("file", name));
        TELL(rename(name, "file"));
        TELL(link("file", name));
        TELL(unlink(name));
        TELL(unlink("to-long"));
        TELL(rmdir(name));
    }
    for (int length = 4092; length <= 4098; length++) {
        memset(name, '/', length);
        memcpy(name, ".", 1);
        memcpy(name + length - 4, "file", 5);
        printf("%d\n", length);
        TELL(stat(name, &status));
        TELL(access(name, F_OK));
        TELL(truncate(name, 5));
        TELL(symlink(name, "to-long"));
        TELL(readlink("to-long", room, sizeof room));
        TELL(unlink("to-long"));
        TELL(rename(name, name));
        TELL(chmod(name, 0644));
    }
    /* Forty links are followed, and not one more. */
    for (int i = 0; i < 42; i++) {
        char to[20], from[20];
        snprintf(to, sizeof to, i ? "chain-%d" : "file", i - 1);
        snprintf(from, sizeof from, "chain-%d", i);
        MUST(symlink(to, from) == 0);
    }
    TELL(stat("chain-38", &status));
    TELL(stat("chain-39", &status));
    TELL(stat("chain-40", &status));
    TELL(stat("chain-41", &status));
}

int main(void) {
    int fd = open("file", O_RDWR | O_CREAT, 0644);
    MUST(fd >= 0 && write(fd, "contents", 8) == 8 && mkdir("directory", 0755) == 0);
    MUST(symlink("file", "to-file") == 0 && symlink("directory", "to-directory") == 0);
    MUST(symlink("nothing", "to-nothing") == 0 && symlink("loop", "loop") == 0);
    printf("a path\n");
    everything(open("file", O_PATH));
    printf("of a directory\n");
    everything(open("directory", O_PATH | O_DIRECTORY));
    printf("of a link\n");
    everything(open("to-file", O_PATH | O_NOFOLLOW));
    printf("a directory\n");
    everything(open("directory", O_RDONLY));
    printf("for reading\n");
    everything(open("file", O_RDONLY));
    printf("for writing\n");
    everything(open("file", O_WRONLY));
    printf("flags\n");
    flags();
    printf("lengths\n");
    lengths();
    return 0;
}
