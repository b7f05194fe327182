/* What fcntl, ioctl and the like answer on a file: leases, owners, signals, seals, hints. */
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "told.h"

static void owners(int fd) {
    struct f_owner_ex owner = {-1, -1};
    uint64_t hint = 7;
    uid_t users[2];
    TELL(fcntl(fd, F_GETOWN));
    TELL(fcntl(fd, F_SETOWN, getpid()));
    TELL(fcntl(fd, F_GETOWN) == getpid());
    TELL(fcntl(fd, F_SETOWN, -getpgrp()));
    TELL(fcntl(fd, F_GETOWN) == -getpgrp());
    TELL(fcntl(fd, F_GETOWN_EX, &owner));
    printf("%d %d\n", owner.type, owner.pid == getpgrp());
    owner = (struct f_owner_ex){F_OWNER_TID, gettid()};
    TELL(fcntl(fd, F_SETOWN_EX, &owner));
    TELL(fcntl(fd, F_GETOWN_EX, &owner));
    printf("%d %d\n", owner.type, owner.pid == gettid());
    owner.type = 77;
    TELL(fcntl(fd, F_SETOWN_EX, &owner));
    TELL(fcntl(fd, F_SETOWN, 0));
    TELL(fcntl(fd, F_SETOWN, 0x7ffffff));
    TELL(fcntl(fd, F_GETOWN));
    TELL(fcntl(fd, F_GETSIG));
    TELL(fcntl(fd, F_SETSIG, SIGUSR2));
    TELL(fcntl(fd, F_GETSIG) == SIGUSR2);
    TELL(fcntl(fd, F_SETSIG, 99));
    TELL(fcntl(fd, F_SETSIG, 0));
    TELL(fcntl(fd, 17 /* F_GETOWNER_UIDS */, users));
    TELL(fcntl(fd, F_SETFL, O_ASYNC));
    TELL(fcntl(fd, F_GETFL) & O_ASYNC);
    TELL(fcntl(fd, F_SETFL, O_NONBLOCK | O_NOATIME));
    TELL(fcntl(fd, F_GETFL) & (O_ASYNC | O_NONBLOCK | O_NOATIME));
    TELL(fcntl(fd, F_SETFL, 0));
    TELL(fcntl(fd, F_GETPIPE_SZ));
    TELL(fcntl(fd, F_SETPIPE_SZ, 4096));
    TELL(fcntl(fd, F_GET_SEALS));
    TELL(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
    TELL(fcntl(fd, F_GET_RW_HINT, &hint));
    printf("hint %ld\n", (long)hint);
    hint = RWH_WRITE_LIFE_SHORT;
    TELL(fcntl(fd, F_SET_RW_HINT, &hint));
    hint = 77;
    TELL(fcntl(fd, F_SET_RW_HINT, &hint));
    TELL(fcntl(fd, F_GET_FILE_RW_HINT, &hint));
    TELL(fcntl(fd, F_SET_FILE_RW_HINT, &hint));
    TELL(fcntl(fd, 0x7777));
    TELL(fcntl(fd, 1030 + 100));
    TELL(fcntl(fd, F_NOTIFY, 0));
    TELL(fcntl(fd, F_DUPFD, 100000000));
    TELL(fcntl(fd, F_DUPFD, -1));
    TELL(fcntl(fd, F_DUPFD_CLOEXEC, 1 << 30));
    TELL(fcntl(fd, 1027 /* F_DUPFD_QUERY */, fd));
    TELL(fcntl(fd, 1027, 0));
    TELL(fcntl(fd, F_SETFD, FD_CLOEXEC));
    TELL(fcntl(fd, F_GETFD));
    TELL(fcntl(fd, F_SETFD, 0xff0));
    TELL(fcntl(fd, F_GETFD));
}

static void leases(void) {
    close(open("leased", O_WRONLY | O_CREAT, 0644));
    int reader = open("leased", O_RDONLY), writer = open("leased", O_RDWR);
    int path = open("leased", O_PATH), directory = open(".", O_RDONLY);
    TELL(fcntl(reader, F_GETLEASE));
    TELL(fcntl(reader, F_SETLEASE, F_RDLCK));
    TELL(fcntl(reader, F_SETLEASE, F_WRLCK));
    TELL(fcntl(writer, F_SETLEASE, F_RDLCK));
    TELL(fcntl(reader, F_SETLEASE, F_UNLCK));
    TELL(fcntl(reader, F_SETLEASE, 77));
    TELL(fcntl(path, F_GETLEASE));
    TELL(fcntl(path, F_SETLEASE, F_RDLCK));
    TELL(fcntl(directory, F_GETLEASE));
    TELL(fcntl(directory, F_SETLEASE, F_RDLCK));
    TELL(fcntl(directory, F_SETLEASE, F_UNLCK));
}

static void devices(int fd, int directory) {
    int number = 0, zero = 0;
    long flags = 0;
    TELL(ioctl(fd, FIONREAD, &number));
    printf("left %d\n", number);
    TELL(lseek(fd, 30, SEEK_SET));
    TELL(ioctl(fd, FIONREAD, &number));
    printf("left %d\n", number);
    TELL(lseek(fd, 0, SEEK_SET));
    TELL(ioctl(fd, FIONBIO, &zero));
    TELL(ioctl(fd, FIOASYNC, &zero));
    TELL(ioctl(fd, FIOQSIZE, &flags));
    TELL(ioctl(fd, FIOCLEX));
    TELL(fcntl(fd, F_GETFD));
    TELL(ioctl(fd, FIONCLEX));
    TELL(ioctl(fd, FIGETBSZ, &number));
    printf("block %d\n", number);
    TELL(ioctl(fd, FIBMAP, &number));
    TELL(ioctl(fd, FICLONE, fd));
    TELL(ioctl(fd, FIDEDUPERANGE, &number));
    TELL(ioctl(fd, FIFREEZE, 0));
    TELL(ioctl(fd, TIOCGWINSZ, &number));
    TELL(ioctl(fd, 0x7777, &number));
    TELL(ioctl(directory, FIONREAD, &number));
    TELL(ioctl(directory, FIOQSIZE, &flags));
    TELL(ioctl(directory, 0x7777, &number));
    TELL(isatty(fd));
}

static void names(int fd, int directory) {
    static const int which[] = {
        _PC_LINK_MAX, _PC_MAX_CANON, _PC_MAX_INPUT, _PC_NAME_MAX, _PC_PATH_MAX, _PC_PIPE_BUF,
        _PC_CHOWN_RESTRICTED, _PC_NO_TRUNC, _PC_VDISABLE, _PC_SYNC_IO, _PC_ASYNC_IO, _PC_PRIO_IO,
        _PC_SOCK_MAXBUF, _PC_FILESIZEBITS, _PC_REC_INCR_XFER_SIZE, _PC_REC_MAX_XFER_SIZE,
        _PC_REC_MIN_XFER_SIZE, _PC_REC_XFER_ALIGN, _PC_ALLOC_SIZE_MIN, _PC_SYMLINK_MAX,
        _PC_2_SYMLINKS, 999,
    };
    for (unsigned i = 0; i < sizeof which / sizeof *which; i++) {
        printf("%d\n", which[i]);
        TELL(pathconf("file", which[i]));
        TELL(pathconf(".", which[i]));
        TELL(pathconf("missing", which[i]));
        TELL(fpathconf(fd, which[i]));
        TELL(fpathconf(directory, which[i]));
    }
    struct stat status;
    MUST(stat("file", &status) == 0);
    long inode = status.st_ino & 0xffff, device = status.st_dev & 0xff;
    TELL(ftok("file", 5) == (key_t)(inode | device << 16 | 5 << 24));
    TELL(ftok("missing", 5));
}

int main(void) {
    char bytes[100] = "";
    int fd = open("file", O_RDWR | O_CREAT, 0644), directory = open(".", O_RDONLY);
    MUST(fd >= 0 && directory >= 0 && write(fd, bytes, 100) == 100 && lseek(fd, 0, SEEK_SET) == 0);
    owners(fd);
    printf("a directory\n");
    owners(directory);
    printf("a path\n");
    int path = open("file", O_PATH);
    owners(path);
    close(path);
    uint64_t hint = RWH_WRITE_LIFE_LONG;
    int other = open("file", O_RDONLY);
    TELL(fcntl(fd, F_SET_RW_HINT, &hint));
    TELL(fcntl(other, F_GET_RW_HINT, &hint));
    printf("hint %ld\n", (long)hint);
    TELL(fcntl(fd, F_NOTIFY, DN_MODIFY));
    leases();
    devices(fd, directory);
    names(fd, directory);
    return 0;
}
