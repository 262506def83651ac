/*
 * The upstream of `make bench`: answers like an OpenAI endpoint, as cheaply as one epoll thread can.
 *
 *     mock_upstream PORT
 *
 *     POST .../embeddings     about 30 KB of JSON
 *     anything else           about 1 KB of JSON, or server-sent events if the body says "stream":true
 *
 * The model's name gives the stream's shape: bench-64x10ms is 64 events 10 ms apart, 0ms all at once. Every event is
 * a send() of its own, as model servers write them, and says when it was written: its text is an '@' and the nanosecond
 * of CLOCK_MONOTONIC in 19 digits. The last one has a finish reason. Paced streams start out of step: the first event
 * goes at once, the second after 0.5 to 1.5 intervals. A stream ends with its usage if the body says
 * "include_usage":true.
 *
 * A request must fit in REQUEST_BYTES, its body needs a Content-Length, and nobody pipelines behind a stream.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
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

enum { REQUEST_BYTES = 16384, MAX_STREAMS = 16384, BATCH = 256 };

typedef long long nanoseconds;

struct connection {
    int fd;
    char request[REQUEST_BYTES + 1]; /* always ends in NUL, so that it can be searched as text */
    size_t request_bytes;
    char *unsent; /* what the socket did not take yet */
    size_t unsent_bytes;
    int events_sent, events_wanted; /* of the stream under way; both 0 otherwise */
    bool tells_usage;               /* the stream does, at its end */
    nanoseconds interval, due;
    int stream; /* its place in streams[], or -1 */
};

static struct connection *streams[MAX_STREAMS]; /* those that wait for their next event */
static int stream_count;

static const char STREAM_HEAD[] =
    "HTTP/1.1 200 OK\r\n"
    "date: Sat, 01 Nov 2025 00:00:00 GMT\r\n"
    "content-type: text/event-stream; charset=utf-8\r\n"
    "openai-processing-ms: 12\r\n"
    "x-request-id: req_5f0c1d2e3b4a59687766554433221100\r\n"
    "transfer-encoding: chunked\r\n"
    "\r\n";

static const char EVENT[] =
    "data: {\"id\":\"chatcmpl-bench0123456789\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,"
    "\"model\":\"bench\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_0123456789\",\"choices\":[{"
    "\"index\":0,\"delta\":{\"content\":\" @%019lld\"},\"logprobs\":null,\"finish_reason\":%s}]}\n\n";

static const char USAGE[] =
    "data: {\"id\":\"chatcmpl-bench0123456789\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,"
    "\"model\":\"bench\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_0123456789\",\"choices\":[],"
    "\"usage\":{\"prompt_tokens\":120,\"completion_tokens\":96,\"total_tokens\":216,"
    "\"prompt_tokens_details\":{\"cached_tokens\":0},\"completion_tokens_details\":{\"reasoning_tokens\":0}}}\n\n";

static const char STREAM_END[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";

static char *chat_answer, *embeddings_answer; /* whole responses, head included */

static nanoseconds now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static char *whole_answer(const char *body) {
    char *answer;
    if (asprintf(&answer,
                 "HTTP/1.1 200 OK\r\n"
                 "date: Sat, 01 Nov 2025 00:00:00 GMT\r\n"
                 "content-type: application/json\r\n"
                 "content-length: %zu\r\n"
                 "openai-processing-ms: 12\r\n"
                 "x-request-id: req_5f0c1d2e3b4a59687766554433221100\r\n"
                 "\r\n%s",
                 strlen(body), body) < 0)
        exit(1);
    return answer;
}

static void write_answers(void) {
    static char body[64 * 1024];
    char text[640] = "";
    while (strlen(text) + 24 < sizeof text) strcat(text, "The release moves on. ");
    snprintf(body, sizeof body,
             "{\"id\":\"chatcmpl-bench0123456789\",\"object\":\"chat.completion\",\"created\":1760000000,"
             "\"model\":\"bench\","
             "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"%s\",\"refusal\":null},"
             "\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":120,\"completion_tokens\":96,"
             "\"total_tokens\":216},\"service_tier\":\"default\",\"system_fingerprint\":\"fp_0123456789\"}",
             text);
    chat_answer = whole_answer(body);

    char *at = stpcpy(body, "{\"object\":\"list\",\"data\":[{\"object\":\"embedding\",\"index\":0,\"embedding\":[");
    for (int i = 0; i < 1536; i++) at += sprintf(at, "%s%.15f", i ? "," : "", drand48() / 10 - 0.05);
    sprintf(at, "]}],\"model\":\"bench\",\"usage\":{\"prompt_tokens\":8,\"total_tokens\":8}}");
    embeddings_answer = whole_answer(body);
}

static void stream_wait(struct connection *c) {
    if (stream_count == MAX_STREAMS) exit(1);
    c->stream = stream_count;
    streams[stream_count++] = c;
}

static void stream_leave(struct connection *c) {
    if (c->stream < 0) return;
    streams[c->stream] = streams[--stream_count];
    streams[c->stream]->stream = c->stream;
    c->stream = -1;
}

static void drop(struct connection *c) {
    stream_leave(c);
    close(c->fd);
    free(c->unsent);
    free(c);
}

/* The functions below answer false when the connection is dead; their caller then drops it. */

static bool flush(struct connection *c) {
    size_t sent = 0;
    while (sent < c->unsent_bytes) {
        ssize_t n = send(c->fd, c->unsent + sent, c->unsent_bytes - sent, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) return false;
        if (n < 0) break;
        sent += n;
    }
    c->unsent_bytes -= sent;
    if (sent) memmove(c->unsent, c->unsent + sent, c->unsent_bytes);
    return true;
}

static bool put(struct connection *c, const char *bytes, size_t size) {
    ssize_t sent = 0;
    if (c->unsent_bytes == 0) {
        sent = send(c->fd, bytes, size, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) return false;
        if (sent < 0) sent = 0;
        if ((size_t)sent == size) return true;
    }
    c->unsent = realloc(c->unsent, c->unsent_bytes + size - sent);
    memcpy(c->unsent + c->unsent_bytes, bytes + sent, size - sent);
    c->unsent_bytes += size - sent;
    return true;
}

static bool put_chunk(struct connection *c, const char *event) {
    char chunk[sizeof EVENT + sizeof USAGE];
    return put(c, chunk, snprintf(chunk, sizeof chunk, "%zx\r\n%s\r\n", strlen(event), event));
}

static bool put_event(struct connection *c) {
    char event[sizeof EVENT + 32];
    bool last = ++c->events_sent == c->events_wanted;
    snprintf(event, sizeof event, EVENT, now(), last ? "\"stop\"" : "null");
    return put_chunk(c, event);
}

/* Sends the next event of a stream (all that are left when they are not paced) and its end after the last. */
static bool stream_on(struct connection *c) {
    do {
        if (!put_event(c)) return false;
    } while (c->interval == 0 && c->events_sent < c->events_wanted);
    if (c->events_sent == c->events_wanted) {
        c->events_sent = c->events_wanted = 0;
        stream_leave(c);
        return (!c->tells_usage || put_chunk(c, USAGE)) && put(c, STREAM_END, sizeof STREAM_END - 1);
    }
    if (c->events_sent == 1) {
        c->due = now() + (nanoseconds)(c->interval * (0.5 + drand48()));
        stream_wait(c);
    } else {
        c->due += c->interval;
    }
    return true;
}

static bool stream_start(struct connection *c, const char *body) {
    int interval_ms;
    const char *model = strstr(body, "bench-");
    if (!model || sscanf(model, "bench-%dx%dms", &c->events_wanted, &interval_ms) != 2 || c->events_wanted < 1) {
        c->events_wanted = 64;
        interval_ms = 0;
    }
    c->events_sent = 0;
    c->tells_usage = strstr(body, "\"include_usage\":true") || strstr(body, "\"include_usage\": true");
    c->interval = interval_ms * 1000000LL;
    return put(c, STREAM_HEAD, sizeof STREAM_HEAD - 1) && stream_on(c);
}

/* Answers every whole request that has arrived, one at a time. */
static bool serve(struct connection *c) {
    while (c->events_wanted == 0) {
        c->request[c->request_bytes] = 0;
        char *head_end = strstr(c->request, "\r\n\r\n");
        if (!head_end) break;
        char *body = head_end + 4;
        char *length = strcasestr(c->request, "\r\ncontent-length:");
        size_t body_bytes = length && length < head_end ? strtoul(length + 17, NULL, 10) : 0;
        size_t whole_bytes = body - c->request + body_bytes;
        if (c->request_bytes < whole_bytes) break;

        char after = body[body_bytes];
        body[body_bytes] = 0;
        bool alive;
        if (strstr(body, "\"stream\":true") || strstr(body, "\"stream\": true"))
            alive = stream_start(c, body);
        else if (memmem(c->request, strcspn(c->request, "\r"), "/embeddings", 11))
            alive = put(c, embeddings_answer, strlen(embeddings_answer));
        else
            alive = put(c, chat_answer, strlen(chat_answer));
        if (!alive) return false;
        body[body_bytes] = after;
        c->request_bytes -= whole_bytes;
        memmove(c->request, c->request + whole_bytes, c->request_bytes);
    }
    return c->request_bytes < REQUEST_BYTES;
}

/* Edge-triggered: read until the socket has no more. */
static bool receive(struct connection *c) {
    for (;;) {
        ssize_t n = recv(c->fd, c->request + c->request_bytes, REQUEST_BYTES - c->request_bytes, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN)) return false;
        if (n < 0) return true;
        c->request_bytes += n;
        if (!serve(c)) return false;
    }
}

static void accept_all(int listener, int poll) {
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct connection *c = calloc(1, sizeof *c);
        c->fd = fd;
        c->stream = -1;
        struct epoll_event interest = {EPOLLIN | EPOLLOUT | EPOLLET, {.ptr = c}};
        epoll_ctl(poll, EPOLL_CTL_ADD, fd, &interest);
    }
}

/* Sends the events that are due; answers when the next one is (LLONG_MAX: none). A scan of all streams: a thousand
 * cost a few microseconds, on a core that the measured system does not use. */
static nanoseconds pace(void) {
    nanoseconds next = LLONG_MAX, t = now();
    for (int i = stream_count - 1; i >= 0; i--) {
        struct connection *c = streams[i];
        if (c->due <= t && !stream_on(c)) drop(c);
        else if (c->stream >= 0 && c->due < next) next = c->due;
    }
    return next;
}

static int listen_on(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 4096)) {
        perror("mock_upstream: bind");
        exit(1);
    }
    return fd;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: mock_upstream PORT\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    write_answers();
    int listener = listen_on(atoi(argv[1])), poll = epoll_create1(0);
    struct epoll_event interest = {EPOLLIN, {.ptr = NULL}}, ready[BATCH];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &interest);
    for (;;) {
        nanoseconds next = pace(), left = next == LLONG_MAX ? 0 : next - now();
        if (left < 0) left = 0;
        struct timespec timeout = {left / 1000000000, left % 1000000000};
        int n = epoll_pwait2(poll, ready, BATCH, next == LLONG_MAX ? NULL : &timeout, NULL);
        for (int i = 0; i < n; i++) {
            struct connection *c = ready[i].data.ptr;
            if (!c) accept_all(listener, poll);
            else if (!flush(c) || (ready[i].events & ~EPOLLOUT && !receive(c))) drop(c);
        }
    }
}
