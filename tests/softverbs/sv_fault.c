/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Fault rules: which requests they match, when they act, and their actions. README.md describes
 * the language. */
#include "sv_int.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int value;
} errnos[] = {
    {"EPERM", EPERM},           {"EIO", EIO},
    {"ENOMEM", ENOMEM},         {"EAGAIN", EAGAIN},
    {"EACCES", EACCES},         {"EFAULT", EFAULT},
    {"EBUSY", EBUSY},           {"ENODEV", ENODEV},
    {"EINVAL", EINVAL},         {"ETIMEDOUT", ETIMEDOUT},
    {"EOPNOTSUPP", EOPNOTSUPP},
};

static const char *const status_names[] = {
    "SUCCESS",          "LOC_LEN_ERR",       "LOC_QP_OP_ERR",     "LOC_EEC_OP_ERR",
    "LOC_PROT_ERR",     "WR_FLUSH_ERR",      "MW_BIND_ERR",       "BAD_RESP_ERR",
    "LOC_ACCESS_ERR",   "REM_INV_REQ_ERR",   "REM_ACCESS_ERR",    "REM_OP_ERR",
    "RETRY_EXC_ERR",    "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR",  "REM_INV_RD_REQ_ERR",
    "REM_ABORT_ERR",    "INV_EECN_ERR",      "INV_EEC_STATE_ERR", "FATAL_ERR",
    "RESP_TIMEOUT_ERR", "GENERAL_ERR",
};

static const char *const op_names[] = {"WRITE", "WRITE_IMM", "SEND", "SEND_IMM",
                                       "READ",  "CAS",       "FADD"};

static const char *const action_names[] = {"fail", "status",  "drop", "drop_ack", "delay",
                                           "dup",  "reorder", "die",  "do",       "block"};

static int lookup(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcasecmp(names[i], name))
            return (int)i;
    return -1;
}
#define LOOKUP(name, table) lookup(name, table, sizeof table / sizeof table[0])

int sv_errno_by_name(const char *name)
{
    for (size_t i = 0; i < sizeof errnos / sizeof errnos[0]; i++)
        if (!strcmp(errnos[i].name, name))
            return errnos[i].value;
    return 0;
}

int sv_status_by_name(const char *name)
{
    return LOOKUP(strncmp(name, "IBV_WC_", 7) ? name : name + 7, status_names);
}

const char *sv_status_name(unsigned int status)
{
    return status < sizeof status_names / sizeof status_names[0] ? status_names[status] : "unknown";
}

/* ---- reading a rule ---- */

static int parse_word(struct sv_rule *r, const char *key, const char *value)
{
    char *end;
    double num = strtod(value, &end);
    bool number = end != value && !*end && num >= 0;
    static const struct {
        const char *key;
        size_t at;
        char kind; /* u: uint64_t, l: long, i: int, d: double */
    } nums[] = {
        {"nth", offsetof(struct sv_rule, nth), 'u'},
        {"count", offsetof(struct sv_rule, count), 'u'},
        {"every", offsetof(struct sv_rule, every), 'u'},
        {"prob", offsetof(struct sv_rule, prob), 'd'},
        {"min_len", offsetof(struct sv_rule, min_len), 'u'},
        {"qp", offsetof(struct sv_rule, qp), 'i'},
        {"qpn", offsetof(struct sv_rule, qpn), 'l'},
        {"ms", offsetof(struct sv_rule, ms), 'l'},
        {"hold", offsetof(struct sv_rule, hold), 'l'},
        {"mode", offsetof(struct sv_rule, mode), 'i'},
    };
    for (size_t i = 0; i < sizeof nums / sizeof nums[0]; i++) {
        if (strcmp(nums[i].key, key))
            continue;
        if (!number)
            return EINVAL;
        void *at = (char *)r + nums[i].at;
        switch (nums[i].kind) {
        case 'u':
            *(uint64_t *)at = (uint64_t)num;
            break;
        case 'l':
            *(long *)at = (long)num;
            break;
        case 'i':
            *(int *)at = (int)num;
            break;
        default:
            *(double *)at = num;
        }
        return 0;
    }
    if (!strcmp(key, "call")) {
        if (strlen(value) >= sizeof r->call)
            return EINVAL;
        strcpy(r->call, value);
        return 0;
    }
    if (!strcmp(key, "op"))
        return (r->opcode = LOOKUP(value, op_names)) < 0 ? EINVAL : 0;
    if (!strcmp(key, "errno"))
        return (r->err = sv_errno_by_name(value)) ? 0 : EINVAL;
    if (!strcmp(key, "status"))
        return (r->status = sv_status_by_name(value)) > 0 ? 0 : EINVAL;
    if (!strcmp(key, "dev")) {
        const struct sv_dev *d = sv_dev_by_name(value);
        r->dev = d ? (int)d->index : -1;
        return d ? 0 : ENODEV;
    }
    return EINVAL;
}

/* Parses "rule NAME ACTION key=value... [do COMMAND]". line starts after "rule". */
int sv_rule_add(const char *line, char *reply, size_t size)
{
    struct sv_rule r = {.dev = -1,
                        .opcode = -1,
                        .qp = -1,
                        .qpn = -1,
                        .nth = 1,
                        .count = 1,
                        .prob = 1,
                        .err = EIO,
                        .status = IBV_WC_FATAL_ERR,
                        .ms = 20,
                        .mode = 1};
    char buf[400], *save = NULL;
    snprintf(buf, sizeof buf, "%s", line);
    char *name = strtok_r(buf, " \t", &save), *action = strtok_r(NULL, " \t", &save);
    int a = action ? LOOKUP(action, action_names) : -1;
    if (!name || strlen(name) >= sizeof r.name || a < 0) {
        snprintf(
            reply, size,
            "a rule is: rule NAME fail|status|drop|drop_ack|delay|dup|reorder|die|do|block ...");
        return EINVAL;
    }
    strcpy(r.name, name);
    r.action = (enum sv_action)a;
    for (char *w; (w = strtok_r(NULL, " \t", &save));) {
        if (!strcmp(w, ":")) {
            snprintf(r.command, sizeof r.command, "%s", save);
            break;
        }
        char *eq = strchr(w, '=');
        if (eq)
            *eq = '\0';
        int rc = eq ? parse_word(&r, w, eq + 1) : EINVAL;
        if (rc) {
            snprintf(reply, size, "rule %s: \"%s%s%s\" is not understood", name, w, eq ? "=" : "",
                     eq ? eq + 1 : "");
            return rc;
        }
    }
    bool of_calls = r.action == SV_A_FAIL || r.action == SV_A_BLOCK;
    if ((r.action == SV_A_DO) != (r.command[0] != '\0') || (of_calls && !r.call[0])) {
        snprintf(reply, size,
                 "rule %s: \"do\" needs \": COMMAND\", \"fail\" and \"block\" need call=", name);
        return EINVAL;
    }
    if (sv.rules == SV_RULE_MAX)
        return ENOSPC;
    sv.rule[sv.rules++] = r;
    return 0;
}

/* ---- matching ---- */

static bool acts(struct sv_rule *r)
{
    r->seen++;
    if ((uint64_t)r->seen < r->nth || (r->count && (uint64_t)r->fired >= r->count))
        return false;
    if (r->every && ((uint64_t)r->seen - r->nth) % r->every)
        return false;
    if (r->prob < 1 && sv_rand() >= (uint32_t)(r->prob * UINT32_MAX))
        return false;
    r->fired++;
    return true;
}

static bool of_qp(const struct sv_rule *r, const struct sv_dev *d, const struct sv_qp *qp)
{
    if (r->dev >= 0 && (!d || d->index != (unsigned int)r->dev))
        return false;
    if (r->qp >= 0 && (!qp || qp->serial != (unsigned int)r->qp))
        return false;
    return r->qpn < 0 || (qp && qp->ibv.qp_num == (uint32_t)r->qpn);
}

static void obey(const struct sv_rule *r)
{
    char why[200] = "", command[sizeof r->command];
    strcpy(command, r->command); /* the command may change the table of rules */
    if (sv_command_locked(command, why, sizeof why))
        fprintf(stderr, "softverbs: rule %s: \"%s\": %s\n", r->name, command, why);
}

/* Blocks until the command `release`, or for the rule's time. The lock is free meanwhile, and the
 * table of rules may change. */
static void block(const struct sv_rule *r)
{
    uint64_t releases = sv.releases, until = sv_now() + (uint64_t)r->ms * 1000000;
    struct timespec soon;
    sv.blocked++;
    while (sv.releases == releases && sv_now() < until) {
        clock_gettime(CLOCK_REALTIME, &soon);
        soon.tv_nsec += 10 * 1000000;
        soon.tv_sec += soon.tv_nsec / 1000000000;
        soon.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&sv.released, &sv.lock, &soon);
    }
    sv.blocked--;
}

static int obey_rules(const char *call, struct sv_dev *dev, struct sv_qp *qp)
{
    for (unsigned int i = 0; i < sv.rules; i++) {
        struct sv_rule *r = &sv.rule[i];
        if (strcmp(r->call, call) || !of_qp(r, dev, qp) || !acts(r))
            continue;
        if (r->action == SV_A_FAIL)
            return r->err;
        if (r->action == SV_A_DO)
            obey(r);
        if (r->action == SV_A_BLOCK)
            block(r);
    }
    return 0;
}

/* True for calls that the driver of vmw_pvrdma passes on to its device, and waits for. */
static bool waits_for_device(const char *call)
{
    static const char *const calls[] = {"open_device", "query_port", "alloc_pd",
                                        "create_cq",   "create_qp",  "modify_qp",
                                        "query_qp",    "reg_mr",     "reg_dmabuf_mr"};
    return LOOKUP(call, calls) >= 0;
}

static int take_time(const char *call)
{
    long us = sv.p.command_us;
    struct timespec left = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    bool waits = us && waits_for_device(call), interrupted = false;
    if (!us || (!waits && strcmp(call, "destroy_qp")))
        return 0;
    pthread_mutex_unlock(&sv.lock);
    while (!interrupted && nanosleep(&left, &left))
        interrupted = waits && sv.p.interruptible;
    pthread_mutex_lock(&sv.lock);
    sv.interrupted += interrupted;
    return interrupted ? ETIMEDOUT : 0;
}

int sv_fault_call(const char *call, struct sv_dev *dev, struct sv_qp *qp)
{
    int err = obey_rules(call, dev, qp);
    return err ? err : take_time(call);
}

static void hold(struct sv_qp *qp, const struct sv_rule *r)
{
    qp->hold_until = sv_now() + (uint64_t)r->ms * 1000000;
    qp->hold_msgs = r->action == SV_A_REORDER ? sv.messages + (uint64_t)r->hold : 0;
    sv.held += qp->hold_msgs != 0;
    sv_wake(qp->hold_until);
}

/* Messages of other QPs have passed. A QP that was held until then goes on. */
static void let_go(void)
{
    if (!sv.held)
        return;
    for (unsigned int i = 0; i < SV_QP_MAX; i++) {
        struct sv_qp *qp = sv.qp[i];
        if (qp && qp->hold_msgs && sv.messages >= qp->hold_msgs) {
            sv.held--;
            sv_wake(0); /* by the service thread, not inside the other QP's transmission */
        }
    }
}

/* Runs the rules for a request that is about to be transmitted (again). False: do not transmit it
 * now. */
bool sv_fault_message(struct sv_qp *qp, struct sv_wqe *w, bool *drop)
{
    struct sv_dev *d = sv_ctx_of(qp->ibv.context)->dev;
    bool go = true, ack_lost = false;
    for (unsigned int i = w->next_rule; i < sv.rules && go; i++) {
        struct sv_rule *r = &sv.rule[i];
        if (r->call[0] || (r->opcode >= 0 && (enum ibv_wr_opcode)r->opcode != w->opcode) ||
            w->len < r->min_len || !of_qp(r, d, qp) ||
            (r->action == SV_A_DUP && w->opcode != IBV_WR_RDMA_WRITE) || !acts(r))
            continue;
        switch (r->action) {
        case SV_A_STATUS:
            w->forced = r->status;
            break;
        case SV_A_DROP:
            *drop = true;
            break;
        case SV_A_DROP_ACK:
            ack_lost = true;
            break;
        case SV_A_DUP:
            w->ghost = true;
            w->ghost_ms = r->ms;
            break;
        case SV_A_DELAY:
        case SV_A_REORDER:
            hold(qp, r);
            w->next_rule = i + 1;
            go = false;
            break;
        case SV_A_DIE:
            qp->dead = r->mode;
            break;
        case SV_A_DO:
            obey(r);
            break;
        default:
            break;
        }
    }
    w->lose_ack += ack_lost && !*drop; /* what never arrives has no answer to lose */
    if (go) {
        w->next_rule = 0;
        sv.messages++;
        let_go();
    }
    return go && qp->dead != 2;
}

static struct sv_rule *by_name(const char *name)
{
    for (unsigned int i = 0; i < sv.rules; i++)
        if (!strcmp(sv.rule[i].name, name))
            return &sv.rule[i];
    return NULL;
}

SV_EXPORT int64_t sv_rule_seen(const char *name)
{
    sv_lock();
    const struct sv_rule *r = by_name(name);
    int64_t n = r ? r->seen : -1;
    sv_unlock();
    return n;
}

SV_EXPORT int64_t sv_rule_fired(const char *name)
{
    sv_lock();
    const struct sv_rule *r = by_name(name);
    int64_t n = r ? r->fired : -1;
    sv_unlock();
    return n;
}
