/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat under srun or mpirun: the copies send their hosts' data to the first one, which
 * shows everything. */
#include "config.h"

#include <errno.h>
#include <glob.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin/base/clock.h"
#include "plugin/base/err.h"
#include "plugin/base/param.h"
#include "plugin/base/version.h"
#include "plugin/tools/boot_tcp.h"
#include "plugin/tools/launch_env.h"
#include "plugin/tools/pmix.h"
#include "topo/tool/stat/stat_adapters.h"
#include "topo/tool/stat/stat_grown.h"
#include "topo/tool/stat/stat_hidden.h"
#include "topo/tool/stat/stat_look.h"

/* Ports apart from pvn-perf's and independent of MASTER_PORT, which the hanging job uses. */
enum { PORT_BASE = 28000, PORT_RANGE = 4000, DOCUMENT_MAX = 64 << 20 };

/* Sent by a copy before its document. */
struct header {
    uint64_t bytes;
    char host[64];
};

/* True if the environment shows that srun or mpirun started several copies. RANK and WORLD_SIZE do
 * not count, because some containers set them for any shell. */
static bool has_others(const struct pvn_launch_env *le)
{
    return le->launcher && le->nranks >= 2 && strcmp(le->launcher, "torchrun") != 0;
}

bool stat_meets(void)
{
    struct pvn_launch_env le;
    char why[512];
    return pvn_launch_env_read(&le, why, sizeof(why)) == 0 && has_others(&le);
}

/* 0 and the rendezvous in le; 1 if this is the only copy, or if the rendezvous is unknown. */
static int find_place(struct pvn_launch_env *le)
{
    char why[512];
    if (pvn_launch_env_read(le, why, sizeof(why)) < 0) {
        tool_error("%s: what this host has is shown", why);
        return 1;
    }
    if (!has_others(le))
        return 1;
    if (pvn_pmix_find_master(le) < 0) {
        tool_error("%s does not give the host of rank 0, where the copies meet: what this host has "
                   "is shown; set MASTER_ADDR to that host for all, or use --hosts",
                   le->launcher);
        return 1;
    }
    le->port = PORT_BASE + (int)(le->job % PORT_RANGE);
    return 0;
}

/* The adapters that the comms of this host use, with the growth within --interval if they have
 * counters. */
static json_t *own_adapters(const struct tool *t, const struct stat_list *list, const char *sysfs)
{
    struct stat_adapters before = {0}, now;
    stat_adapters_read(t, list, sysfs, &now);
    if (t->interval_s > 0 && pvn_topo_look_counters(&now.look) > 0) {
        before = now;
        tool_sleep(t->interval_s);
        stat_adapters_read(t, list, sysfs, &now);
    }
    json_t *adapters = stat_adapters_json(&before, &now);
    stat_adapters_free(&before);
    stat_adapters_free(&now);
    return adapters;
}

/* Sends this host's document. Takes ownership of adapters. */
static int send_own(const struct tool *t, struct pvn_boot *b, const struct stat_list *list,
                    json_t *adapters)
{
    /* Rank 0 begins to read after its second snapshot. */
    double until = pvn_now_s() + t->wait_s + t->interval_s;
    struct tool to = *t;
    struct header h = {0};
    char *text = NULL;
    size_t len = 0;
    int rc;
    to.out = open_memstream(&text, &len);
    if (!to.out) {
        json_decref(adapters);
        return -ENOMEM;
    }
    stat_print_json(&to, list, NULL, adapters);
    rc = fclose(to.out) == 0 ? 0 : -ENOMEM;
    h.bytes = len;
    gethostname(h.host, sizeof(h.host) - 1);
    if (rc == 0)
        rc = pvn_boot_send(b->fd[0], &h, sizeof(h), until, NULL);
    if (rc == 0)
        rc = pvn_boot_send(b->fd[0], text, len, until, NULL);
    free(text);
    return rc;
}

/* Receives one rank's document into its answer. */
static void receive(const struct tool *t, int fd, struct tool_answer *a, struct header *h)
{
    double until = pvn_now_s() + t->wait_s + t->interval_s;
    char *text = NULL;
    int rc = pvn_boot_recv(fd, h, sizeof(*h), until, NULL);
    h->host[sizeof(h->host) - 1] = '\0';
    if (rc == 0 && h->bytes > DOCUMENT_MAX)
        rc = -EMSGSIZE;
    if (rc == 0 && !(text = malloc(h->bytes + 1)))
        rc = -ENOMEM;
    if (rc == 0)
        rc = pvn_boot_recv(fd, text, h->bytes, until, NULL);
    if (rc == 0) {
        a->doc = tool_parse_document(text, h->bytes, "stat", a);
    } else {
        snprintf(a->reason, sizeof(a->reason), "it came, but its document did not: %s",
                 strerror(-rc));
        snprintf(a->remedy, sizeof(a->remedy), "look for its own message; else once more");
    }
    free(text);
}

/* Gathers the documents of all copies; several copies on one host are one answer. Takes ownership
 * of adapters. */
static void gather(const struct tool *t, struct pvn_boot *b, struct tool_answer *all,
                   struct header *h, struct stat_list *list, json_t *adapters)
{
    gethostname(h[0].host, sizeof(h[0].host) - 1);
    all[0] = (struct tool_answer){
        .host = h[0].host,
        .processes = list->n,
        .doc = json_pack("{soso}", "adapters", adapters, "unreadable", stat_hidden())};
    list->unread += list->n == 0 && stat_hidden_in(all[0].doc) > 0;
    list->answer = all;
    list->answers = 1;
    for (int i = 1; i < b->nranks; i++) {
        struct tool_answer *a = &all[list->answers];
        int before = list->n, same = 0;
        *a = (struct tool_answer){.host = h[i].host};
        if (b->fd[i] >= 0) {
            receive(t, b->fd[i], a, &h[i]);
        } else {
            snprintf(a->reason, sizeof(a->reason), "it did not come within %d s", t->wait_s);
            snprintf(a->remedy, sizeof(a->remedy),
                     "look whether the launcher started it, and whether it reaches rank 0's host");
        }
        if (!h[i].host[0])
            snprintf(h[i].host, sizeof(h[i].host), "rank %d of the launcher", i);
        if (!a->doc || stat_add_document(list, a->host, a->doc) < 0)
            list->unread++;
        while (same < list->answers && strcmp(all[same].host, a->host) != 0)
            same++;
        all[same < list->answers ? same : list->answers].processes += list->n - before;
        list->unread += same == list->answers && list->n == before && stat_hidden_in(a->doc) > 0;
        if (same == list->answers || !a->doc) {
            list->answers++;
            continue;
        }
        stat_grown_join(&all[same], a);
        json_decref(a->doc);
    }
}

/* Rank 0: shows everything. Takes ownership of adapters. */
static int show_all(const struct tool *t, struct pvn_boot *b, struct stat_list *list,
                    json_t *adapters)
{
    struct tool_answer *all = calloc((size_t)b->nranks, sizeof(*all));
    struct header *h = calloc((size_t)b->nranks, sizeof(*h));
    int status = TOOL_INPUT;
    if (all && h) {
        gather(t, b, all, h, list, adapters);
        status = stat_show(t, list, NULL);
        if (t->json)
            tool_print_unanswered(t, stderr, list->answer, list->answers);
        else if (t->interval_s > 0)
            stat_print_grown(t, list->answer, list->answers, t->interval_s);
    } else {
        json_decref(adapters);
        tool_error("out of memory for %d ranks", b->nranks);
    }
    for (int i = 0; all && i < list->answers; i++)
        json_decref(all[i].doc);
    free(all);
    free(h);
    return status;
}

bool stat_meet(struct tool *t, int *status)
{
    struct pvn_launch_env le;
    struct stat_list list = {0};
    struct pvn_boot_key key;
    struct pvn_boot b;
    char why[PVN_ERR_TEXT_LEN], sysfs[PVN_PARAM_STR_LEN];
    json_t *adapters;
    if (find_place(&le) != 0)
        return false;
    struct pvn_boot_tcp meeting = {.rank = le.rank,
                                   .nranks = le.nranks,
                                   .master = le.master,
                                   .port = le.port,
                                   .job = le.job,
                                   .token = pvn_launch_hash(0, "pvn-topo stat"),
                                   .meet_timeout = t->wait_s,
                                   .timeout = t->wait_s,
                                   .program = "pvn-topo",
                                   .release = pvn_version(),
                                   .see = "MASTER_ADDR, --timeout, or use --hosts",
                                   .partial = true};
    int rc = pvn_boot_key_load(&key, "pvn-topo stat", why, sizeof(why));
    meeting.key = key.key ? &key : NULL;
    if (rc >= 0)
        rc = pvn_boot_tcp_meet(&b, &meeting, why, sizeof(why));
    pvn_boot_key_free(&key);
    if (rc < 0) {
        tool_error("%s: what this host has is shown", why);
        return false;
    }
    glob_t dirs = stat_directories(sysfs, sizeof(sysfs));
    stat_read_from(&list, &dirs, 0, NULL);
    globfree(&dirs);
    adapters = own_adapters(t, &list, sysfs);
    list.twice_is_fine = list.saved = true;
    if (le.rank == 0) {
        *status = show_all(t, &b, &list, adapters);
    } else {
        rc = send_own(t, &b, &list, adapters);
        if (rc < 0)
            tool_error("rank %d could not send to rank 0 at %s: %s: look at rank 0's output",
                       le.rank, le.master, strerror(-rc));
        *status = rc < 0 ? TOOL_INPUT : TOOL_OK;
        t->elsewhere = true;
    }
    pvn_boot_close(&b);
    stat_list_free(&list);
    return true;
}
