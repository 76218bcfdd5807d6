/* web [PORT]: a web server of one page, for the demo and for tests that want a pod to answer.
 *
 * GET /healthz answers "ok"; every other path answers $GREETING and what the pod was told about itself.
 * It logs a line per request and ends within a moment of SIGTERM. One connection at a time, each with a
 * deadline of two seconds: no client can hold it. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const char *env(const char *name, const char *otherwise)
{
    const char *value = getenv(name);

    return value && *value ? value : otherwise;
}

static void stop(int sig)
{
    static const char bye[] = "asked to stop: bye\n";

    (void)sig;
    if (write(STDOUT_FILENO, bye, sizeof bye - 1) < 0)
        _exit(1);
    _exit(0);
}

static void answer(int client)
{
    char request[2048], path[256] = "?", body[2048], head[256];
    ssize_t got = recv(client, request, sizeof request - 1, 0);
    int size, length;

    if (got <= 0)
        return;
    request[got] = '\0';
    sscanf(request, "%*15s %255s", path);
    if (strcmp(path, "/healthz") == 0)
        size = snprintf(body, sizeof body, "ok\n");
    else
        size = snprintf(body, sizeof body, "%s\n\npod       %s/%s\naddress   %s\nnode      %s\n",
                        env("GREETING", "Hello from a pod."), env("POD_NAMESPACE", "?"), env("POD_NAME", "?"),
                        env("POD_IP", "?"), env("NODE_NAME", "?"));
    if (size >= (int)sizeof body)
        size = sizeof body - 1;
    length = snprintf(head, sizeof head,
                      "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\n"
                      "Content-Length: %d\r\nConnection: close\r\n\r\n", size);
    if (send(client, head, length, MSG_NOSIGNAL) == length && send(client, body, size, MSG_NOSIGNAL) == size)
        printf("answered %s\n", path);
}

int main(int argc, char **argv)
{
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    struct timeval deadline = {.tv_sec = 2};
    int on = 1, server = socket(AF_INET, SOCK_STREAM, 0);
    int port = atoi(argc > 1 ? argv[1] : "8080");

    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    where.sin_port = htons((unsigned short)port);
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (server < 0 || bind(server, (struct sockaddr *)&where, sizeof where) < 0 || listen(server, 64) < 0) {
        perror("web: can't listen");
        return 1;
    }
    printf("listening on port %d\n", port);
    for (;;) {
        int client = accept(server, NULL, NULL);

        if (client < 0)
            continue;
        setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof deadline);
        setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &deadline, sizeof deadline);
        answer(client);
        close(client);
    }
}
