/* A disk that fails, for the files of one store: preloaded into a gateway, told what to do through shared memory.

   DISK_FILES is what the names of these files begin with; DISK_CONTROL is a file with a `struct control`;
   DISK_RECORD, where it is set, gets each write and each fsync, so that a power cut can be played afterwards. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { SYNC = 1, WRITE = 2, READ = 4 };

struct control {
    _Atomic int32_t fails;   /* which calls fail: SYNC, WRITE, READ, or several */
    _Atomic int32_t skip;    /* so many of them still succeed */
    _Atomic int32_t times;   /* and then so many fail */
    _Atomic int32_t error;   /* with this errno */
    _Atomic int32_t slow_ms; /* an fsync takes so much longer */
    _Atomic int32_t lies;    /* an fsync does nothing, and says that it did */
    _Atomic int32_t failed;  /* so many failed */
    _Atomic int32_t dies;    /* the process is killed before the write with this number, counted from now on */
    _Atomic int32_t written; /* so many writes began */
    _Atomic int32_t hangs;   /* reads do not return as long as this is set */
    _Atomic int32_t hung;    /* so many reads did not return at once */
};

struct record {
    int32_t kind; /* 'w', 's': synced, 'f': an fsync failed, 't': cut */
    int32_t file; /* 0: the database, 1: its log */
    int64_t offset, bytes;
};

static struct control *control;
static int record_file = -1;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("DISK_CONTROL");
    int file = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) control = mapped;
    if ((name = getenv("DISK_RECORD"))) record_file = open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

/* -1: none of the store's; the index of the log, which no crash leaves, is none either. */
static int which(int file) {
    char link[64], name[PATH_MAX];
    const char *files = getenv("DISK_FILES");
    if (!control || !files) return -1;
    char *end = link + sizeof link;
    *--end = 0;
    for (int n = file; n || !*end; n /= 10) *--end = '0' + n % 10;
    char path[80] = "/proc/self/fd/";
    strcat(path, end);
    ssize_t bytes = readlink(path, name, sizeof name - 1);
    if (bytes < 0) return -1;
    name[bytes] = 0;
    if (!strcmp(name, files)) return 0;
    size_t length = strlen(files);
    return !strncmp(name, files, length) && !strcmp(name + length, "-wal") ? 1 : -1;
}

static void note(int kind, int file, int64_t offset, int64_t bytes, const void *data) {
    if (record_file < 0) return;
    struct record head = {kind, file, offset, bytes};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)data, kind == 'w' ? (size_t)bytes : 0}};
    if (writev(record_file, parts, 2) < 0) abort();
}

static int fails(int kind) {
    if (!(control->fails & kind)) return 0;
    if (atomic_fetch_sub(&control->skip, 1) > 0) return 0;
    if (atomic_fetch_sub(&control->times, 1) <= 0) return 0;
    atomic_fetch_add(&control->failed, 1);
    errno = control->error;
    return 1;
}

static int synced(int file, const char *name) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int index = which(file);
    if (index < 0) return real(file);
    if (control->slow_ms) {
        struct timespec pause = {control->slow_ms / 1000, control->slow_ms % 1000 * 1000000L};
        nanosleep(&pause, NULL);
    }
    if (fails(SYNC)) {
        note('f', index, 0, 0, NULL);
        return -1;
    }
    if (control->lies) return 0;
    int result = real(file);
    if (!result) note('s', index, 0, 0, NULL);
    return result;
}

int fsync(int file) { return synced(file, "fsync"); }
int fdatasync(int file) { return synced(file, "fdatasync"); }

static ssize_t written(int file, const void *data, size_t bytes, off64_t offset, const char *name) {
    ssize_t (*real)(int, const void *, size_t, off64_t) = (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, name);
    int index = which(file);
    if (index >= 0) {
        atomic_fetch_add(&control->written, 1);
        if (control->dies > 0 && atomic_fetch_sub(&control->dies, 1) == 1) kill(getpid(), SIGKILL);
    }
    if (index >= 0 && fails(WRITE)) return -1;
    ssize_t result = real(file, data, bytes, offset);
    if (index >= 0 && result > 0) note('w', index, offset, result, data);
    return result;
}

ssize_t pwrite(int file, const void *data, size_t bytes, off_t offset) { return written(file, data, bytes, offset, "pwrite"); }
ssize_t pwrite64(int file, const void *data, size_t bytes, off64_t offset) { return written(file, data, bytes, offset, "pwrite64"); }

static void hang(int file) {
    if (control && control->hangs && which(file) >= 0) {
        struct timespec pause = {0, 1000000L};
        atomic_fetch_add(&control->hung, 1);
        while (control->hangs) nanosleep(&pause, NULL);
    }
}

/* By which programs read files that are no store: those hang, too. */
ssize_t read(int file, void *data, size_t bytes) {
    ssize_t (*real)(int, void *, size_t) = (ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    hang(file);
    return real(file, data, bytes);
}

static ssize_t was_read(int file, void *data, size_t bytes, off64_t offset, const char *name) {
    ssize_t (*real)(int, void *, size_t, off64_t) = (ssize_t (*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, name);
    hang(file);
    if (control && control->fails & READ && which(file) >= 0 && fails(READ)) return -1;
    return real(file, data, bytes, offset);
}

ssize_t pread(int file, void *data, size_t bytes, off_t offset) { return was_read(file, data, bytes, offset, "pread"); }
ssize_t pread64(int file, void *data, size_t bytes, off64_t offset) { return was_read(file, data, bytes, offset, "pread64"); }

static int cut(int file, off64_t bytes, const char *name) {
    int (*real)(int, off64_t) = (int (*)(int, off64_t))dlsym(RTLD_NEXT, name);
    int index = which(file);
    int result = real(file, bytes);
    if (index >= 0 && !result) note('t', index, 0, bytes, NULL);
    return result;
}

int ftruncate(int file, off_t bytes) { return cut(file, bytes, "ftruncate"); }
int ftruncate64(int file, off64_t bytes) { return cut(file, bytes, "ftruncate64"); }
