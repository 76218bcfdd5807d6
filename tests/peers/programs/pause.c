/* pause: the process that keeps a pod's sandbox alive. It waits, reaps what is orphaned into a shared
 * process namespace, and ends at once when it is asked to. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

int main(void)
{
    sigset_t set;
    int got;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (;;) {
        if (sigwait(&set, &got) != 0)
            return EXIT_FAILURE;
        if (got != SIGCHLD)
            return EXIT_SUCCESS;
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    }
}
