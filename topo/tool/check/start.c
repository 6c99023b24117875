/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Runs the plugin's own functions, which read the settings and look for devices, in a child
 * process: libraries of others open adapters, and one that does not answer then holds up only the
 * child. */
#include "config.h"
#include "topo/tool/check/start.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugin/base/addr.h"
#include "plugin/base/dev_list.h"
#include "plugin/base/log.h"
#include "plugin/base/param.h"
#include "plugin/comm/device.h"
#include "plugin/tools/nccl_conf.h"
#include "topo/tool/base/tool.h"
#include "topo/tool/show/show.h"

extern char **environ;

enum {
    LIMIT_MS = 30000, /* drivers end most commands to a silent firmware sooner */
    SAID = 12,        /* warnings that are kept */
    TEXT = 384        /* bytes of a row's text */
};

/* The child's answer, in memory that both share. */
struct start {
    char refused[PVN_ERR_TEXT_LEN]; /* why the plugin refuses the settings; "" if it accepts them */
    char no_key[PVN_ERR_TEXT_LEN];  /* why no connection would be made; "" */
    char failed[PVN_ERR_TEXT_LEN];  /* why the search for devices has failed; "" */
    char said[SAID][TEXT];          /* warnings */
    int n_said, of_settings;        /* the first of_settings warnings are about settings */
    int set;                        /* parameters that are not at their default */
    int devices;
    bool adapters;     /* a device is an RDMA port */
    bool may_use_rdma; /* RDMA is not excluded */
    bool rdma_alone;   /* TCP is excluded */
    bool loopback;     /* no device leads out of this machine */
    bool named;        /* the user has named its interface */
    char names[256];
    char left_out[1024];
    bool ended;
};

/* ---- in the child ---- */

static void keep(void *arg, enum pvn_log_level level, unsigned long flags, const char *file,
                 int line, const char *text)
{
    struct start *s = arg;
    (void)flags;
    (void)file;
    (void)line;
    if (level == PVN_LOG_WARN && s->n_said < SAID)
        tool_escape(text, s->said[s->n_said++], TEXT);
}

static int count_set(const struct pvn_params *params)
{
    size_t rows;
    int n = 0;
    pvn_param_table(&rows);
    for (size_t i = 0; i < rows; i++)
        n += params->source[i] != PVN_PARAM_FROM_DEFAULT;
    return n;
}

/* Reads the settings. False if the plugin would not start with them. */
static bool read_settings(const struct tool *t, struct start *s, struct pvn_params *params)
{
    static char *const none[] = {NULL};
    struct pvn_err err = PVN_ERR_INIT;
    int rc = pvn_params_read(params, t->ignore_env ? none : environ, &err);
    s->of_settings = s->n_said;
    if (rc < 0) {
        pvn_err_format(&err, s->refused, sizeof(s->refused));
        return false;
    }
    s->set = count_set(params);
    if (tool_key_contradicts(params, &err) < 0)
        snprintf(s->no_key, sizeof(s->no_key), "%s", err.reason[0]);
    return true;
}

static void note_devices(struct start *s, const struct pvn_params *params)
{
    struct pvn_dev_list names = pvn_dev_list_parse(params->socket_ifname);
    s->devices = pvn_devices_count();
    s->adapters = pvn_devices_have_adapters();
    s->loopback = s->devices > 0;
    s->named = !names.empty && !names.exclude;
    for (int i = 0; i < s->devices; i++) {
        const struct pvn_device *d = pvn_device_get(i);
        s->loopback &= pvn_addr_is_loopback((const struct sockaddr *)&d->addr);
        pvn_str_append(s->names, sizeof(s->names), "%s%s", i ? ", " : "", d->name);
    }
    snprintf(s->left_out, sizeof(s->left_out), "%s", pvn_devices_left_out());
}

/* Starts the plugin without a test of GPU memory, because CUDA takes seconds, and memory of a GPU
 * that others use. */
static void try_start(const struct tool *t, struct start *s)
{
    static struct pvn_params params;
    struct pvn_err err = PVN_ERR_INIT;
    pvn_log_set_capture(keep, s);
    if (read_settings(t, s, &params)) {
        s->may_use_rdma =
            params.transport != PVN_TRANSPORT_TCP && params.encrypt != PVN_ENCRYPT_ALL;
        s->rdma_alone = params.transport == PVN_TRANSPORT_RDMA;
        params.gpu_mem = PVN_GPU_MEM_OFF;
        pvn_params_override(&params);
        if (pvn_devices_load(&err) < 0)
            pvn_err_format(&err, s->failed, sizeof(s->failed));
        note_devices(s, &params);
    }
    s->ended = true;
}

/* ---- the process ---- */

/* Waits for the child, whose exit closes the pipe. False if it did not end in time. */
static bool wait_for(int fd, pid_t pid, int *end)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int n;
    do
        n = poll(&p, 1, LIMIT_MS);
    while (n < 0 && errno == EINTR);
    if (n <= 0) {
        kill(pid, SIGKILL);
        waitpid(pid, end, WNOHANG); /* a child inside a driver may not end at all */
        return false;
    }
    while (waitpid(pid, end, 0) < 0 && errno == EINTR)
        ;
    return true;
}

/* Runs the child. 0 and *end, its wait status; -ETIME, or another negative errno. */
static int run(const struct tool *t, struct start *s, int *end)
{
    int fds[2], rc;
    pid_t pid;
    if (pipe(fds) != 0)
        return -errno;
    pid = fork();
    rc = -errno;
    if (pid == 0) {
        close(fds[0]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        try_start(t, s);
        _exit(0);
    }
    close(fds[1]);
    if (pid > 0)
        rc = wait_for(fds[0], pid, end) ? 0 : -ETIME;
    close(fds[0]);
    return rc;
}

/* ---- rows ---- */

static int add(struct pvn_topo_checks *checks, const char *id, enum pvn_topo_level level,
               const char *subject, const char *remedy, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

static int add(struct pvn_topo_checks *checks, const char *id, enum pvn_topo_level level,
               const char *subject, const char *remedy, const char *format, ...)
{
    char text[2 * PVN_ERR_TEXT_LEN], shown[TEXT];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    return pvn_topo_checks_add(checks, id, level, subject, tool_escape(text, shown, sizeof(shown)),
                               remedy);
}

/* Adds rows for the settings. The plugin's own sentences have the remedies. */
static int add_settings(const struct tool *t, const struct start *s, struct pvn_topo_checks *checks)
{
    static const char list[] = "`pvn-topo params` lists them, with their ranges";
    int rc = 0;
    bool fine = !s->refused[0] && !s->no_key[0] && s->of_settings == 0;
    char taken[TEXT], homes[TEXT] = "";
    pvn_nccl_conf_taken(taken, sizeof(taken));
    if (!t->ignore_env)
        pvn_nccl_conf_homes(getenv("NCCL_CONF_FILE"), getenv("HOME"), getuid(), homes,
                            sizeof(homes));
    if (s->refused[0])
        rc = add(checks, "settings", PVN_TOPO_LEVEL_FAIL, "environment", list,
                 "the plugin refuses to start: %s", s->refused);
    if (rc == 0 && s->no_key[0])
        rc = add(checks, "settings", PVN_TOPO_LEVEL_FAIL, "environment", "",
                 "no connection is made: %s", s->no_key);
    for (int i = 0; rc == 0 && i < s->of_settings; i++)
        rc = add(checks, "settings", PVN_TOPO_LEVEL_WARN, "environment",
                 "correct the variable, or unset it", "%s", s->said[i]);
    if (rc == 0 && fine)
        rc = add(checks, "settings", PVN_TOPO_LEVEL_OK, "environment", "",
                 "%d of the plugin's parameters %s set, the others are at their defaults", s->set,
                 s->set == 1 ? "is" : "are");
    if (rc == 0 && taken[0])
        rc = add(checks, "settings", PVN_TOPO_LEVEL_OK, "nccl.conf", "", "%s", taken);
    if (rc == 0 && homes[0])
        rc = add(checks, "settings", PVN_TOPO_LEVEL_WARN, "nccl.conf",
                 "name a file by NCCL_CONF_FILE, or make both alike", "%s", homes);
    return rc;
}

/* True if a warning already has this text. */
static bool is_said(const struct start *s, const char *text)
{
    for (int i = s->of_settings; i < s->n_said; i++)
        if (strstr(s->said[i], text))
            return true;
    return false;
}

static int add_no_device(const struct start *s, struct pvn_topo_checks *checks)
{
    char why[2048] = "";
    for (int i = s->of_settings; i < s->n_said; i++)
        pvn_str_append(why, sizeof(why), "%s%s", why[0] ? "; " : "", s->said[i]);
    if (s->left_out[0] && !is_said(s, s->left_out))
        pvn_str_append(why, sizeof(why), "%snot used: %s", why[0] ? "; " : "", s->left_out);
    return add(checks, "interfaces", PVN_TOPO_LEVEL_FAIL, "devices",
               s->rdma_alone ? "see the rows of the ports; NCCL_PVRDMA_TRANSPORT=auto takes TCP "
                               "where there is no RDMA"
                             : "bring an interface up and give it an address (ip link, ip addr); "
                               "NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY choose",
               "the plugin has no device here, so NCCL uses another transport, or ends: %s",
               why[0] ? why : "there is none");
}

static int add_loopback(const struct start *s, struct pvn_topo_checks *checks)
{
    return add(checks, "interfaces", PVN_TOPO_LEVEL_WARN, s->names,
               "bring an interface up and give it an address (ip link, ip addr), or choose one by "
               "NCCL_SOCKET_IFNAME",
               "only loopback is used, so no other machine can be reached%s%s",
               s->left_out[0] ? "; not used: " : "", s->left_out);
}

/* Adds a row for RDMA devices that the machine has and the plugin does not use. */
static int add_unused(const struct tool *t, const struct start *s, struct pvn_topo_checks *checks)
{
    if (s->adapters || !s->may_use_rdma || t->topo->nrdmas == 0 || !s->left_out[0] ||
        is_said(s, "RDMA is not used"))
        return 0;
    return add(checks, "interfaces", PVN_TOPO_LEVEL_WARN, "RDMA",
               "see the rows of its ports; where TCP is meant, NCCL_PVRDMA_TRANSPORT=tcp",
               "the plugin uses TCP, although there are RDMA devices; not used: %s", s->left_out);
}

/* True for a warning that another row repeats. */
static bool is_elsewhere(const char *text)
{
    return strstr(text, "only loopback is used");
}

static int add_devices(const struct tool *t, const struct start *s, struct pvn_topo_checks *checks)
{
    char remedy[320];
    int rc = 0;
    snprintf(remedy, sizeof(remedy), "correct what it names; until then the plugin uses %s",
             s->names);
    if (s->failed[0])
        return add(
            checks, "interfaces", PVN_TOPO_LEVEL_FAIL, "devices",
            "correct what it names; without NCCL_PVRDMA_STRICT the plugin takes what is left",
            "the plugin refuses to start: %s", s->failed);
    if (s->devices == 0)
        return add_no_device(s, checks);
    for (int i = s->of_settings; rc == 0 && i < s->n_said; i++)
        if (!is_elsewhere(s->said[i]))
            rc =
                add(checks, "interfaces", PVN_TOPO_LEVEL_WARN, "devices", remedy, "%s", s->said[i]);
    if (rc == 0)
        rc = add_unused(t, s, checks);
    if (rc == 0 && s->loopback && !s->named)
        return add_loopback(s, checks);
    return rc ? rc
              : add(checks, "interfaces", PVN_TOPO_LEVEL_OK, s->names, "", "the plugin uses %s%s%s",
                    s->devices == 1 ? "it" : "them", s->left_out[0] ? "; not used: " : "",
                    s->left_out);
}

static int add_hung(struct pvn_topo_checks *checks, int rc, int end)
{
    static const char remedy[] =
        "read dmesg; NCCL_IB_HCA=^NAME leaves an adapter out, NCCL_PVRDMA_TRANSPORT=tcp all of them";
    if (rc == -ETIME)
        return add(checks, "interfaces", PVN_TOPO_LEVEL_FAIL, "devices", remedy,
                   "the plugin's look for devices did not end in %d s: an adapter or its driver "
                   "does not answer",
                   LIMIT_MS / 1000);
    if (rc < 0)
        return add(checks, "interfaces", PVN_TOPO_LEVEL_UNKNOWN, "devices", "",
                   "no process for the plugin's look for devices: %s", strerror(-rc));
    return add(checks, "interfaces", PVN_TOPO_LEVEL_FAIL, "devices", remedy,
               "the process that looked for devices was ended by %s %d, in an adapter's library",
               WIFSIGNALED(end) ? "signal" : "exit status",
               WIFSIGNALED(end) ? WTERMSIG(end) : WEXITSTATUS(end));
}

int tool_check_start(const struct tool *t, struct pvn_topo_checks *checks)
{
    struct start *s =
        mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int end = 0, rc, err = 0;
    if (s == MAP_FAILED)
        return -ENOMEM;
    rc = run(t, s, &end);
    /* A child that hangs has read the settings. */
    if (rc == 0 || rc == -ETIME)
        err = add_settings(t, s, checks);
    if (err == 0 && rc == 0 && s->ended)
        err = s->refused[0] ? 0 : add_devices(t, s, checks);
    else if (err == 0)
        err = add_hung(checks, rc, end);
    munmap(s, sizeof(*s));
    return err;
}
