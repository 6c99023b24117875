/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The command language of configuration files, fault rules and sv_command. See README.md. */
#include "sv_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int port_of(const char *dev, const char *port, struct sv_dev **d, int *p)
{
    *d = sv_dev_by_name(dev);
    if (!*d)
        return ENODEV;
    *p = atoi(port);
    return *p >= 1 && *p <= sv.p.ports ? 0 : EINVAL;
}

static int cmd_port(int argc, char **argv, char *reply, size_t size)
{
    struct sv_dev *d;
    int p, rc = argc == 4 ? port_of(argv[1], argv[2], &d, &p) : EINVAL;
    if (rc)
        return rc;
    if (strcmp(argv[3], "up") && strcmp(argv[3], "down"))
        return EINVAL;
    sv_port_set(d, p, !strcmp(argv[3], "up"));
    return 0;
}

/* Parses an IPv6 literal, or an IPv4 one into its mapped form. */
static int parse_gid(const char *s, union ibv_gid *gid)
{
    if (inet_pton(AF_INET6, s, gid->raw) == 1)
        return 0;
    memset(gid->raw, 0, 10);
    gid->raw[10] = gid->raw[11] = 0xff;
    return inet_pton(AF_INET, s, gid->raw + 12) == 1 ? 0 : EINVAL;
}

static int cmd_gid(int argc, char **argv, char *reply, size_t size)
{
    struct sv_dev *d;
    int p, rc = argc >= 5 ? port_of(argv[1], argv[2], &d, &p) : EINVAL;
    if (rc)
        return rc;
    struct sv_gid g = {.valid = false};
    if (!strcmp(argv[3], "clear")) { /* gid DEV PORT clear all */
        memset(d->port[p - 1].gid, 0, sizeof d->port[p - 1].gid);
        sv_gid_set(d, p, 0, &g);
        sv_sysfs_refresh(NULL, 0, 0);
        return 0;
    }
    int i = atoi(argv[3]);
    if (i < 0 || i >= sv.p.gid_tbl_len)
        return EINVAL;
    if (strcmp(argv[4], "none")) {
        static const char *const types[] = {"ib", "v1", "v2"};
        rc = parse_gid(argv[4], &g.gid);
        g.valid = true;
        g.type = sv.p.ethernet ? 2 : 0;
        for (uint32_t t = 0; argc > 5 && t < 3; t++)
            if (!strcmp(argv[5], types[t]))
                g.type = t;
        if (argc > 6)
            snprintf(g.ndev, sizeof g.ndev, "%s", argv[6]);
    }
    if (!rc)
        sv_gid_set(d, p, i, &g);
    return rc;
}

static int cmd_event(int argc, char **argv, char *reply, size_t size)
{
    static const char *const names[] = {"CQ_ERR",
                                        "QP_FATAL",
                                        "QP_REQ_ERR",
                                        "QP_ACCESS_ERR",
                                        "COMM_EST",
                                        "SQ_DRAINED",
                                        "PATH_MIG",
                                        "PATH_MIG_ERR",
                                        "DEVICE_FATAL",
                                        "PORT_ACTIVE",
                                        "PORT_ERR",
                                        "LID_CHANGE",
                                        "PKEY_CHANGE",
                                        "SM_CHANGE",
                                        "SRQ_ERR",
                                        "SRQ_LIMIT_REACHED",
                                        "QP_LAST_WQE_REACHED",
                                        "CLIENT_REREGISTER",
                                        "GID_CHANGE"};
    struct sv_dev *d;
    int p, rc = argc == 4 ? port_of(argv[1], argv[2], &d, &p) : EINVAL;
    for (unsigned int i = IBV_EVENT_DEVICE_FATAL; !rc && i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(names[i], argv[3])) {
            sv_raise_dev(d, (enum ibv_event_type)i, p);
            return 0;
        }
    return rc ? rc : EINVAL;
}

static int cmd_fatal(int argc, char **argv, char *reply, size_t size)
{
    struct sv_dev *d = argc >= 2 ? sv_dev_by_name(argv[1]) : NULL;
    bool gone = argc >= 3 && !strcmp(argv[2], "gone");
    long ms = argc == 4 ? strtol(argv[3], NULL, 10) : 0;
    if (!d || argc > 4 || (argc >= 3 && !gone) || (argc == 4 && ms <= 0))
        return d ? EINVAL : ENODEV;
    if (ms)
        sv_dev_remove(d, (uint64_t)ms * 1000000);
    else
        sv_dev_fatal(d, gone);
    return 0;
}

static int cmd_renew(int argc, char **argv, char *reply, size_t size)
{
    struct sv_dev *d = argc >= 2 ? sv_dev_by_name(argv[1]) : NULL;
    bool other = argc == 3 && !strcmp(argv[2], "other");
    if (!d || argc > 3 || (argc == 3 && !other))
        return d ? EINVAL : ENODEV;
    sv_dev_renew(d, other);
    return 0;
}

/* QPN|#SERIAL */
static struct sv_qp *qp_named(const char *name)
{
    bool serial = name[0] == '#';
    unsigned long n = strtoul(name + serial, NULL, 0);
    struct sv_qp *qp = serial ? NULL : sv_qp_find((uint32_t)n);
    for (unsigned int i = 0; serial && !qp && i < SV_QP_MAX; i++)
        if (sv.qp[i] && sv.qp[i]->serial == n)
            qp = sv.qp[i];
    return qp;
}

static int cmd_path(int argc, char **argv, char *reply, size_t size)
{
    struct sv_qp *qp = argc == 2 ? qp_named(argv[1]) : NULL;
    if (!qp)
        return argc == 2 ? ESRCH : EINVAL;
    if (qp->ibv.state != IBV_QPS_RTR && qp->ibv.state != IBV_QPS_RTS)
        return ENOTCONN;
    snprintf(reply, size, "sl=%u", qp->attr.ah_attr.sl);
    return 0;
}

/* qp QPN|#SERIAL error|fatal|overrun|die|hang */
static int cmd_qp(int argc, char **argv, char *reply, size_t size)
{
    if (argc != 3)
        return EINVAL;
    struct sv_qp *qp = qp_named(argv[1]);
    if (!qp)
        return ESRCH;
    if (!strcmp(argv[2], "error") || !strcmp(argv[2], "fatal")) {
        if (argv[2][0] == 'f')
            sv_raise(sv_ctx_of(qp->ibv.context), IBV_EVENT_QP_FATAL, &qp->ibv, 0);
        sv_qp_error(qp);
        return 0;
    }
    if (!strcmp(argv[2], "overrun")) {
        sv_cq_overrun((struct sv_cq *)qp->ibv.send_cq);
        return 0;
    }
    if (strcmp(argv[2], "die") && strcmp(argv[2], "hang"))
        return EINVAL;
    qp->dead = argv[2][0] == 'd' ? 1 : 2;
    return 0;
}

static int cmd_release(int argc, char **argv, char *reply, size_t size)
{
    sv_release();
    sv_relaxed_release();
    sv.releases++;
    pthread_cond_broadcast(&sv.released);
    return 0;
}

static int cmd_timers(int argc, char **argv, char *reply, size_t size)
{
    sv_timers();
    return 0;
}

static int cmd_rules(int argc, char **argv, char *reply, size_t size)
{
    if (argc == 2 && !strcmp(argv[1], "clear")) {
        sv.rules = 0;
        return 0;
    }
    size_t n = 0;
    for (unsigned int i = 0; i < sv.rules && n < size; i++)
        n += (size_t)snprintf(reply + n, size - n, "%s seen=%lld fired=%lld\n", sv.rule[i].name,
                              (long long)sv.rule[i].seen, (long long)sv.rule[i].fired);
    return 0;
}

static int cmd_stat(int argc, char **argv, char *reply, size_t size)
{
    const struct sv_stats *s = &sv.total;
    snprintf(reply, size,
             "post_send=%llu post_recv=%llu poll=%llu poll_empty=%llu notify=%llu send_wr=%llu "
             "recv_wr=%llu cqe=%llu doorbells=%llu qps=%u mrs=%u messages=%llu ghosts_landed=%llu "
             "ghosts_refused=%llu leaked=%u inherited=%u blocked=%u interrupted=%llu overlaps=%llu "
             "relaxed=%llu",
             (unsigned long long)s->post_send, (unsigned long long)s->post_recv,
             (unsigned long long)s->poll, (unsigned long long)s->poll_empty,
             (unsigned long long)s->notify, (unsigned long long)s->send_wr,
             (unsigned long long)s->recv_wr, (unsigned long long)s->cqe,
             (unsigned long long)s->doorbells, sv.qp_count, sv.mr_count,
             (unsigned long long)sv.messages, (unsigned long long)sv.ghosts_landed,
             (unsigned long long)sv.ghosts_refused, sv.leaked, sv_shared_uses(), sv.blocked,
             (unsigned long long)sv.interrupted, (unsigned long long)sv.overlaps,
             (unsigned long long)sv.relaxed_held);
    return 0;
}

static int cmd_set(int argc, char **argv, char *reply, size_t size)
{
    /* Settings that may change while devices are open, because no object depends on them */
    static const char *const live[] = {
        "async",  "timeout_cap_ms", "descend",          "routed",     "memlock_kb", "max_mr",
        "max_qp", "max_mr_size",    "relaxed_ordering", "command_us", "mtu"};
    for (size_t i = 0; argc == 3 && i < sizeof live / sizeof live[0]; i++)
        if (!strcmp(live[i], argv[1]))
            return sv_profile_set(&sv.p, argv[1], argv[2]);
    snprintf(reply, size, "cannot be set now: say it in the configuration");
    return EINVAL;
}

int sv_command_locked(const char *line, char *reply, size_t size)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv, char *reply, size_t size);
    } commands[] = {
        {"port", cmd_port},   {"gid", cmd_gid}, {"event", cmd_event},   {"fatal", cmd_fatal},
        {"renew", cmd_renew}, {"qp", cmd_qp},   {"rules", cmd_rules},   {"release", cmd_release},
        {"stat", cmd_stat},   {"set", cmd_set}, {"timers", cmd_timers}, {"path", cmd_path},
    };
    if (size)
        reply[0] = '\0';
    if (!strncmp(line, "rule ", 5))
        return sv_rule_add(line + 5, reply, size);
    char buf[400], *argv[8], *save = NULL;
    int argc = 0;
    snprintf(buf, sizeof buf, "%s", line);
    for (char *w = strtok_r(buf, " \t", &save); w && argc < 8; w = strtok_r(NULL, " \t", &save))
        argv[argc++] = w;
    for (size_t i = 0; argc && i < sizeof commands / sizeof commands[0]; i++)
        if (!strcmp(commands[i].name, argv[0])) {
            int rc = commands[i].run(argc, argv, reply, size);
            if (rc && size && !reply[0])
                snprintf(reply, size, "%s: %s", argv[0], strerror(rc));
            return rc;
        }
    snprintf(reply, size, "no such command");
    return EINVAL;
}

SV_EXPORT int sv_command(const char *line, char *reply, size_t size)
{
    char own[2048];
    sv_lock();
    int rc = sv_command_locked(line, own, sizeof own);
    sv_unlock();
    if (reply && size)
        snprintf(reply, size, "%s", own);
    return rc;
}
