/*
 * The client of `make bench`: sends one request over and over on keep-alive connections, from one epoll thread.
 *
 *     load PORT CONNECTIONS SECONDS RATE < request
 *
 * RATE 0 is a closed loop: each connection sends again as soon as its answer is whole. Otherwise RATE requests a
 * second are due at even distances, and a request's time counts from when it was due, so that a slow system cannot
 * hide its queue. Prints one line of JSON:
 *
 *     requests   answered whole, with status 200
 *     errors     everything else; first_error tells the first
 *     events     server-sent events with a piece of the upstream's text, of unfinished streams too
 *     streaming  connections in the middle of a stream at the end
 *     p50_us     median time from due (closed loop: sent) to the last byte
 *     first_us   median time from due to the first text of a stream
 *     text_us    median time from the upstream's writing of that text, which says when that was, to its arrival
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { REQUEST_BYTES = 65536, HEAD_BYTES = 8192, READ_BYTES = 262144, BATCH = 256, TAIL_BYTES = 12 };

typedef long long nanoseconds;

enum state { CLOSED, CONNECTING, IDLE, BUSY };

struct connection {
    int fd;
    enum state state;
    nanoseconds since; /* when the request under way was due */
    char head[HEAD_BYTES + 1];
    size_t head_bytes;
    bool in_body, last; /* last: the answer said Connection: close */
    long long body_left; /* -1: chunked */
    char tail[TAIL_BYTES]; /* the last bytes of a chunked body */
    int events;            /* of the answer under way */
    bool text;             /* some of its text is here */
};

/* Times of which the median is told. */
struct times {
    float *us;
    size_t count, room;
};

static char request[REQUEST_BYTES];
static size_t request_bytes;
static int port, poll;
static struct connection *connections, **idle;
static int connection_count, idle_count;
static long requests, errors, events;
static char first_error[160];
static struct times whole, first, text;

static nanoseconds now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void hang_up(struct connection *c) {
    for (int i = 0; c->state == IDLE && i < idle_count; i++)
        if (idle[i] == c) {
            idle[i] = idle[--idle_count];
            break;
        }
    close(c->fd);
    c->state = CLOSED;
}

static void fail(struct connection *c, const char *why, const char *detail) {
    if (!errors++) {
        snprintf(first_error, sizeof first_error, "%s%.60s", why, detail);
        for (char *at = first_error; *at; at++)
            if (*at < ' ' || *at == '"' || *at == '\\') *at = '?'; /* it goes into a JSON string */
    }
    hang_up(c);
}

static void dial(struct connection *c) {
    int on = 1;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    c->state = CONNECTING;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) && errno != EINPROGRESS) {
        fail(c, "connect: ", strerror(errno));
        return;
    }
    struct epoll_event interest = {EPOLLIN | EPOLLOUT | EPOLLET, {.ptr = c}};
    epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &interest);
}

/* The limit ends the run of a system that is not there. */
static void redial(struct connection *c) {
    if (c->state == CLOSED && errors < 1000) dial(c);
}

/* The request is a kilobyte and the connection has nothing else under way: the socket always takes it whole. */
static void ask(struct connection *c, nanoseconds due) {
    c->since = due;
    c->state = BUSY;
    c->head_bytes = 0;
    c->in_body = false;
    c->events = 0;
    c->text = false;
    memset(c->tail, 0, sizeof c->tail);
    if (send(c->fd, request, request_bytes, MSG_NOSIGNAL) != (ssize_t)request_bytes)
        fail(c, "send: ", strerror(errno));
}

static void free_for_next(struct connection *c) {
    c->state = IDLE;
    idle[idle_count++] = c;
}

static void note(struct times *times, nanoseconds since) {
    if (times->count == times->room) {
        times->room = times->room ? times->room * 2 : 65536;
        times->us = realloc(times->us, times->room * sizeof *times->us);
    }
    times->us[times->count++] = (now() - since) / 1000.0f;
}

static void answered(struct connection *c) {
    requests++;
    note(&whole, c->since);
    if (c->last) hang_up(c);
    else free_for_next(c);
}

/* Reads the head's status and framing once it is whole; answers how many of the bytes belong to it. */
static size_t take_head(struct connection *c, const char *bytes, size_t size) {
    size_t before = c->head_bytes, room = HEAD_BYTES - before;
    size_t copied = size < room ? size : room;
    memcpy(c->head + before, bytes, copied);
    c->head_bytes += copied;
    c->head[c->head_bytes] = 0;
    char *end = strstr(c->head, "\r\n\r\n");
    if (!end) {
        if (copied < size) fail(c, "answer: head too long", "");
        return size;
    }
    end[2] = 0;
    c->in_body = true;
    c->last = strcasestr(c->head, "\r\nconnection: close") != NULL;
    char *length = strcasestr(c->head, "\r\ncontent-length:");
    bool chunked = strcasestr(c->head, "\r\ntransfer-encoding: chunked") != NULL;
    c->body_left = chunked ? -1 : length ? atoll(length + 17) : 0;
    size_t used = end + 4 - c->head - before;
    if (strncmp(c->head, "HTTP/1.1 200 ", 13)) {
        *strchr(c->head, '\r') = 0;
        fail(c, "answer: ", c->head);
    } else if (!chunked && !length) {
        fail(c, "answer: neither Content-Length nor chunked", "");
    }
    return used;
}

/*
 * The upstream's texts begin with " @". Chunks of chat completions have them as the "content" of a delta, events of
 * the Responses API as a "delta"; what those say again at their end has another name.
 */
static void count_events(struct connection *c, const char *bytes, size_t size) {
    const char *end = bytes + size;
    for (const char *at = bytes; (at = memchr(at, '@', end - at)); at++) {
        char before[TAIL_BYTES];
        size_t here = at - bytes < TAIL_BYTES ? at - bytes : TAIL_BYTES;
        memcpy(before, c->tail + here, TAIL_BYTES - here);
        memcpy(before + TAIL_BYTES - here, at - here, here);
        if (!memcmp(before, "\"content\":\" ", 12) || !memcmp(before + 2, "\"delta\":\" ", 10)) c->events++, events++;
    }
}

/* The upstream's texts are an '@' and the nanosecond of their writing in 19 digits. */
static void look_for_text(struct connection *c, const char *bytes, size_t size) {
    const char *at = c->text ? NULL : memchr(bytes, '@', size);
    if (!at || bytes + size - at < 20) return;
    c->text = true;
    note(&first, c->since);
    note(&text, strtoll(at + 1, NULL, 10));
}

static void keep_tail(struct connection *c, const char *bytes, size_t size) {
    size_t taken = size < TAIL_BYTES ? size : TAIL_BYTES;
    memmove(c->tail, c->tail + taken, TAIL_BYTES - taken);
    memcpy(c->tail + TAIL_BYTES - taken, bytes + size - taken, taken);
}

static void take(struct connection *c, const char *bytes, size_t size) {
    if (!c->in_body) {
        size_t used = take_head(c, bytes, size);
        bytes += used;
        size -= used;
    }
    if (c->state != BUSY || !c->in_body) return;
    if (c->body_left < 0) {
        if (!size) return;
        count_events(c, bytes, size);
        look_for_text(c, bytes, size);
        keep_tail(c, bytes, size);
        if (!memcmp(c->tail + TAIL_BYTES - 5, "0\r\n\r\n", 5)) answered(c);
        return;
    }
    c->body_left -= size;
    if (c->body_left < 0) fail(c, "answer: longer than its Content-Length", "");
    else if (c->body_left == 0) answered(c);
}

/* Edge-triggered: read until the socket has no more. */
static void receive(struct connection *c) {
    static char buffer[READ_BYTES];
    while (c->state == BUSY || c->state == IDLE) {
        ssize_t n = recv(c->fd, buffer, sizeof buffer, 0);
        if (n < 0 && errno == EAGAIN) return;
        if (n > 0 && c->state == BUSY) take(c, buffer, n);
        else if (n > 0) fail(c, "bytes nobody asked for", "");
        else if (c->state == IDLE) hang_up(c);
        else if (n < 0) fail(c, "receive: ", strerror(errno));
        else fail(c, "closed before the answer was whole", "");
    }
}

static void react(struct connection *c, unsigned happened) {
    if (c->state == CONNECTING && happened & EPOLLOUT) {
        int error = 0;
        socklen_t size = sizeof error;
        getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size);
        if (error) fail(c, "connect: ", strerror(error));
        else free_for_next(c);
        return;
    }
    if (happened & ~EPOLLOUT) receive(c);
}

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double median(struct times *times) {
    qsort(times->us, times->count, sizeof *times->us, by_size);
    return times->count ? times->us[times->count / 2] : 0.0;
}

static void report(void) {
    int streaming = 0;
    for (int i = 0; i < connection_count; i++) streaming += connections[i].state == BUSY && connections[i].events > 0;
    printf("{\"requests\": %ld, \"errors\": %ld, \"first_error\": \"%s\", ", requests, errors, first_error);
    printf("\"events\": %ld, \"streaming\": %d, \"p50_us\": %.1f, ", events, streaming, median(&whole));
    printf("\"first_us\": %.1f, \"text_us\": %.1f}\n", median(&first), median(&text));
}

static void run(nanoseconds until, nanoseconds step) {
    struct epoll_event ready[BATCH];
    nanoseconds due = now() + step, t;
    while ((t = now()) < until) {
        while (idle_count && (step == 0 || due <= t)) {
            struct connection *c = idle[--idle_count];
            ask(c, step ? due : t);
            redial(c);
            due += step;
        }
        nanoseconds wake = step && idle_count && due < until ? due : until;
        nanoseconds left = wake > now() ? wake - now() : 0;
        struct timespec timeout = {left / 1000000000, left % 1000000000};
        int n = epoll_pwait2(poll, ready, BATCH, &timeout, NULL);
        for (int i = 0; i < n; i++) {
            struct connection *c = ready[i].data.ptr;
            react(c, ready[i].events);
            redial(c);
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: load PORT CONNECTIONS SECONDS RATE < request\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    port = atoi(argv[1]);
    connection_count = atoi(argv[2]);
    double seconds = atof(argv[3]), rate = atof(argv[4]);
    request_bytes = fread(request, 1, sizeof request, stdin);
    connections = calloc(connection_count, sizeof *connections);
    idle = calloc(connection_count, sizeof *idle);
    poll = epoll_create1(0);
    for (int i = 0; i < connection_count; i++) dial(&connections[i]);
    run(now() + (nanoseconds)(seconds * 1e9), rate > 0 ? (nanoseconds)(1e9 / rate) : 0);
    report();
    return 0;
}
