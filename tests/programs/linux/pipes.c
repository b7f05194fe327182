/* tee, splice, vmsplice, sendfile and copy_file_range, with files and pipes on either side. */
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "told.h"

static char bytes[9000], back[9000];

static void look(const char *what, int fd) {
    struct stat status;
    MUST(fstat(fd, &status) == 0);
    ssize_t count = pread(fd, back, sizeof back, 0);
    unsigned sum = 0;
    for (ssize_t i = 0; i < count; i++) {
        sum = sum * 31 + (unsigned char)back[i];
    }
    printf("%s: %ld bytes, %x, at %ld\n", what, (long)status.st_size, sum,
           (long)lseek(fd, 0, SEEK_CUR));
}

static void drain(int fd) {
    char room[65536];
    fcntl(fd, F_SETFL, O_NONBLOCK);
    printf("in the pipe: %ld\n", (long)read(fd, room, sizeof room));
    fcntl(fd, F_SETFL, 0);
}

static int fresh(const char *name, int flags) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | flags, 0644);
    MUST(fd >= 0 && write(fd, bytes, sizeof bytes) == sizeof bytes && lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

static void splices(int in, int out, int ends[2], int directory) {
    loff_t at = 100, negative = -5;
    TELL(splice(in, NULL, ends[1], NULL, 3000, 0));
    look("from", in);
    TELL(splice(ends[0], NULL, out, NULL, 3000, 0));
    look("to", out);
    TELL(splice(in, &at, ends[1], NULL, 500, SPLICE_F_MOVE | SPLICE_F_MORE));
    printf("at %ld\n", (long)at);
    at = 50;
    TELL(splice(ends[0], NULL, out, &at, 500, 0));
    printf("at %ld\n", (long)at);
    look("to", out);
    TELL(splice(in, NULL, ends[1], NULL, 0, 0));
    TELL(splice(in, NULL, ends[1], NULL, 10, 0x100));
    TELL(splice(in, NULL, out, NULL, 10, 0));
    TELL(splice(in, &negative, ends[1], NULL, 10, 0));
    TELL(splice(in, NULL, ends[1], &at, 10, 0));
    TELL(splice(ends[0], &at, out, NULL, 10, 0));
    TELL(splice(directory, NULL, ends[1], NULL, 10, 0));
    TELL(splice(ends[0], NULL, out, NULL, 10, SPLICE_F_NONBLOCK));
    at = 100000;
    TELL(splice(in, &at, ends[1], NULL, 10, 0));
    int reader = open("in", O_RDONLY), writer = open("in", O_WRONLY), path = open("in", O_PATH);
    int appends = open("out", O_WRONLY | O_APPEND);
    TELL(splice(writer, NULL, ends[1], NULL, 10, 0));
    MUST(write(ends[1], bytes, 10) == 10);
    TELL(splice(ends[0], NULL, reader, NULL, 10, 0));
    TELL(splice(ends[0], NULL, path, NULL, 10, 0));
    TELL(splice(ends[0], NULL, appends, NULL, 10, 0));
    TELL(splice(ends[0], NULL, -1, NULL, 10, 0));
    TELL(splice(-1, NULL, out, NULL, 10, 0));
    drain(ends[0]);
    TELL(tee(in, ends[1], 10, 0));
    TELL(tee(ends[0], out, 10, 0));
    TELL(tee(in, out, 10, 0));
    TELL(tee(path, ends[1], 10, 0));
    struct iovec vector = {bytes, 10};
    TELL(vmsplice(in, &vector, 1, 0));
    TELL(vmsplice(out, &vector, 1, 0));
    TELL(vmsplice(path, &vector, 1, 0));
    TELL(vmsplice(ends[1], &vector, 1, 0));
    TELL(splice(ends[0], NULL, out, NULL, 10, 0));
    close(reader), close(writer), close(path), close(appends);
}

static void sends(int in, int out, int ends[2], int directory) {
    off_t at = 10, negative = -1;
    int pair[2];
    MUST(lseek(in, 0, SEEK_SET) == 0 && lseek(out, 0, SEEK_SET) == 0);
    TELL(sendfile(out, in, NULL, 4000));
    look("from", in);
    look("to", out);
    TELL(sendfile(out, in, &at, 100));
    printf("at %ld\n", (long)at);
    TELL(sendfile(out, in, &negative, 10));
    TELL(sendfile(out, in, NULL, 0));
    TELL(sendfile(ends[1], in, NULL, 100));
    TELL(sendfile(out, ends[0], NULL, 100));
    drain(ends[0]);
    TELL(sendfile(out, directory, NULL, 10));
    TELL(sendfile(directory, in, NULL, 10));
    int appends = open("out", O_WRONLY | O_APPEND), reader = open("out", O_RDONLY);
    int path = open("in", O_PATH);
    TELL(sendfile(appends, in, NULL, 10));
    TELL(sendfile(reader, in, NULL, 10));
    TELL(sendfile(out, appends, NULL, 10));
    TELL(sendfile(out, path, NULL, 10));
    TELL(sendfile(path, in, NULL, 10));
    TELL(sendfile(out, in, NULL, (size_t)-1));
    at = 1L << 62;
    TELL(sendfile(out, in, &at, 10));
    at = 0x7fffffffffffffff;
    TELL(sendfile(out, in, &at, 10));
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    at = 0;
    TELL(sendfile(pair[0], in, &at, 100));
    TELL(read(pair[1], back, 200));
    close(appends), close(reader), close(path), close(pair[0]), close(pair[1]);
}

static void copies(int in, int out, int ends[2], int directory) {
    off_t from = 10, to = 20, negative = -1, far = 0x7fffffffffffffff;
    MUST(lseek(in, 0, SEEK_SET) == 0 && lseek(out, 0, SEEK_SET) == 0);
    TELL(copy_file_range(in, NULL, out, NULL, 5000, 0));
    look("from", in);
    look("to", out);
    TELL(copy_file_range(in, &from, out, &to, 100, 0));
    printf("%ld %ld\n", (long)from, (long)to);
    TELL(copy_file_range(in, &from, out, &to, 100, 1));
    TELL(copy_file_range(in, &from, out, &to, 0, 0));
    TELL(copy_file_range(in, &negative, out, &to, 10, 0));
    TELL(copy_file_range(in, &from, out, &negative, 10, 0));
    TELL(copy_file_range(in, &from, out, &far, 10, 0));
    TELL(copy_file_range(in, &far, out, &to, 10, 0));
    from = 0, to = 50;
    TELL(copy_file_range(in, &from, in, &to, 100, 0));
    from = 0, to = 100;
    TELL(copy_file_range(in, &from, in, &to, 100, 0));
    look("itself", in);
    from = 0, to = 8950;
    TELL(copy_file_range(in, &from, in, &to, 100, 0));
    from = 8950, to = 8900;
    TELL(copy_file_range(in, &from, in, &to, 100, 0));
    from = 8990, to = 0;
    TELL(copy_file_range(in, &from, out, &to, 100, 0));
    from = 9000;
    TELL(copy_file_range(in, &from, out, &to, 100, 0));
    from = 0;
    TELL(copy_file_range(directory, &from, out, &to, 10, 0));
    TELL(copy_file_range(in, &from, directory, &to, 10, 0));
    TELL(copy_file_range(ends[0], NULL, out, &to, 10, 0));
    TELL(copy_file_range(in, &from, ends[1], NULL, 10, 0));
    int appends = open("out", O_WRONLY | O_APPEND), reader = open("out", O_RDONLY);
    int path = open("in", O_PATH), null = open("/dev/null", O_RDWR);
    TELL(copy_file_range(in, &from, appends, NULL, 10, 0));
    TELL(copy_file_range(in, &from, reader, NULL, 10, 0));
    TELL(copy_file_range(appends, NULL, out, NULL, 10, 0));
    TELL(copy_file_range(path, NULL, out, NULL, 10, 0));
    TELL(copy_file_range(in, NULL, path, NULL, 10, 0));
    TELL(copy_file_range(in, &from, null, NULL, 10, 0));
    TELL(copy_file_range(-1, NULL, out, NULL, 10, 0));
    TELL(copy_file_range(in, NULL, -1, NULL, 10, 0));
    look("to", out);
    close(appends), close(reader), close(path), close(null);
}

int main(void) {
    for (unsigned i = 0; i < sizeof bytes; i++) {
        bytes[i] = (char)(i * 7 + i / 256);
    }
    int in = fresh("in", 0), out = fresh("out", 0), ends[2], directory = open(".", O_RDONLY);
    MUST(pipe(ends) == 0);
    splices(in, out, ends, directory);
    sends(in, out, ends, directory);
    copies(in, out, ends, directory);
    return 0;
}
