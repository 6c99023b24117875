/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/nccl_vars.h"
#include "base/param.h"
#include "base/version.h"
#include "perf/jobs/job.h"
#include "perf/results/report.h"
#include "perf/jobs/serve.h"
#include "perf/rank/stop.h"
#include "seal/key.h"
#include "tools/boot_tcp.h"
#include "tools/launch_env.h"
#include "tools/nccl_conf.h"
#include "tools/pmix.h"
#include "tools/std_fds.h"

/* The number of ranks of this run, and who starts them. */
struct place {
    int nranks;
    int external; /* one process per rank, started by a launcher */
    int rank;
    struct pvn_boot boot; /* external only */
};

static int usage_error(const char *why)
{
    fprintf(stderr, "pvn-perf: %s\n", why);
    return PVN_PERF_USAGE;
}

static int meet(struct place *p, const struct pvn_perf_opts *o, struct pvn_launch_env *le)
{
    int known = o->master[0] || pvn_pmix_find_master(le) == 0 || le->nranks == 1;
    char host[256] = "", why[PVN_ERR_TEXT_LEN];
    struct pvn_boot_key key;
    struct pvn_boot_tcp t = {.rank = le->rank,
                             .nranks = le->nranks,
                             .master = o->master[0] ? o->master : le->master,
                             .port = o->port ? o->port : le->port,
                             .release = pvn_version(),
                             .job = le->job,
                             .token = pvn_perf_opts_token(o),
                             .meet_timeout = o->boot_timeout,
                             .timeout = o->timeout};
    int rc;

    if (!known) {
        /* Only the rank that knows it prints this. */
        gethostname(host, sizeof(host) - 1);
        if (le->rank == 0)
            fprintf(stderr,
                    "pvn-perf: %s does not give the host of rank 0 of %d, where the ranks have to "
                    "meet: add --master %s, or set MASTER_ADDR=%s for all ranks\n",
                    le->launcher, le->nranks, host, host);
        return PVN_PERF_USAGE;
    }
    rc = pvn_boot_key_load(&key, "pvn-perf meeting", why, sizeof(why));
    t.key = key.key ? &key : NULL;
    if (rc >= 0)
        rc = pvn_boot_tcp_meet(&p->boot, &t, why, sizeof(why));
    pvn_boot_key_free(&key);
    if (rc) {
        fprintf(stderr, "pvn-perf: %s\n", why);
        return PVN_PERF_FAILED;
    }
    return PVN_PERF_OK;
}

static int find_place(struct place *p, const struct pvn_perf_opts *o)
{
    struct pvn_launch_env le;
    char why[PVN_ERR_TEXT_LEN];

    memset(p, 0, sizeof(*p));
    p->nranks = o->ranks ? o->ranks : 2;
    if (o->ranks)
        return PVN_PERF_OK;
    if (o->peer[0]) {
        p->external = 1;
        if (pvn_serve_join(&p->boot, o, why, sizeof(why)) == 0)
            return PVN_PERF_OK;
        fprintf(stderr, "pvn-perf: %s\n", why);
        return PVN_PERF_FAILED;
    }
    if (pvn_launch_env_read(&le, why, sizeof(why)))
        return usage_error(why);
    if (!le.launcher)
        return PVN_PERF_OK;
    if (o->nnetns)
        return usage_error("--netns is for ranks that are started here: give --ranks N");
    if (o->mode == PVN_PERF_P2P && le.nranks != 2) {
        snprintf(why, sizeof(why),
                 "p2p is between 2 ranks; %s started %d (--ranks 2 starts them here)", le.launcher,
                 le.nranks);
        return usage_error(why);
    }
    if (o->mode == PVN_PERF_MESH && le.nranks < 2) {
        snprintf(why, sizeof(why),
                 "mesh is between at least 2 ranks; %s started %d (--ranks N starts N here)",
                 le.launcher, le.nranks);
        return usage_error(why);
    }
    p->nranks = le.nranks;
    p->rank = le.rank;
    p->external = 1;
    return meet(p, o, &le);
}

/* The next rank count of a scale run: all up to 8, then powers of two, and the last. */
static int next_ranks(const struct pvn_perf_opts *o, int n, int all)
{
    if (o->mode != PVN_PERF_SCALE || n >= all)
        return all + 1;
    n = n < 8 ? n + 1 : 2 * n;
    return n > all ? all : n;
}

static int run_jobs(const struct pvn_perf_opts *o, struct place *p, struct pvn_report *rep)
{
    int status = PVN_PERF_OK;

    for (int k = 0; k < o->repeat; k++) {
        int first = o->mode == PVN_PERF_SCALE ? 1 : p->nranks;

        for (int n = first; n <= p->nranks; n = next_ranks(o, n, p->nranks)) {
            for (int i = 0; i < o->nplugins; i++) {
                struct pvn_job j = {.o = o,
                                    .plugin = i,
                                    .repeat = k,
                                    .nranks = n,
                                    .on_row = pvn_report_row,
                                    .arg = rep};
                int rc = p->external ? pvn_job_run_rank(&j, &p->boot) : pvn_job_run_forked(&j);

                status = rc > status ? rc : status;
                /* After a failure the ranks of a launcher have lost their connections. */
                if (rc >= PVN_PERF_FAILED || (rc != PVN_PERF_OK && p->external))
                    return status;
            }
        }
    }
    return status;
}

/* Prints this build's parameters, with the values that the plugin would take from this
 * environment. */
static int print_params(void)
{
    struct pvn_err err = PVN_ERR_INIT;
    char text[PVN_ERR_TEXT_LEN];
    int rc;

    pvn_nccl_conf_say("pvn-perf");
    pvn_log_set_level(PVN_LOG_WARN);
    rc = pvn_params_load(&err);
    if (rc) {
        pvn_err_format(&err, text, sizeof(text));
        fprintf(stderr, "pvn-perf: %s\n", text);
    }
    pvn_params_print(stdout, pvn_params_get());
    pvn_nccl_vars_print(stdout, environ);
    pvn_params_unload();
    return rc ? PVN_PERF_USAGE : PVN_PERF_OK;
}

static int make_key(const char *path)
{
    struct pvn_err err = PVN_ERR_INIT;
    char text[PVN_ERR_TEXT_LEN];

    if (pvn_key_make(path, &err) == 0)
        return PVN_PERF_OK;
    pvn_err_format(&err, text, sizeof(text));
    fprintf(stderr, "pvn-perf: --make-key: %s\n", text);
    return PVN_PERF_FAILED;
}

static int run_perf(int argc, char **argv)
{
    static struct pvn_perf_opts o;
    static struct pvn_run_info info;
    struct pvn_report rep;
    struct place place;
    int rc;

    pvn_nccl_conf_take();
    pvn_run_info_fill(&info, argc, argv);
    rc = pvn_perf_opts_parse(&o, argc, argv);

    if (rc != PVN_PERF_OK)
        return rc == PVN_PERF_HELP ? PVN_PERF_OK : rc;
    if (o.mode == PVN_PERF_PARAMS)
        return print_params();
    if (o.make_key[0])
        return make_key(o.make_key);
    if (o.mode == PVN_PERF_SERVE) {
        pvn_nccl_conf_say("pvn-perf");
        return pvn_serve(&o);
    }
    rc = find_place(&place, &o);
    if (rc != PVN_PERF_OK)
        return rc;
    if (place.rank == 0)
        pvn_nccl_conf_say("pvn-perf");
    /* Open files before the measurement, because they may not be writable. */
    if (pvn_report_open(&rep, &o, place.rank == 0, &info)) {
        if (place.external)
            pvn_boot_abort(&place.boot, "rank 0 cannot read or write its files");
        return PVN_PERF_FAILED;
    }
    rep.external = place.external;
    pvn_stop_catch();
    place.boot.stop = &pvn_stop_flag;
    rc = run_jobs(&o, &place, &rep);
    if (rc == PVN_PERF_INTERRUPTED && o.peer[0] && !pvn_stop_flag)
        fprintf(stderr,
                "pvn-perf: the server at %s ended the run: it was interrupted there, or took "
                "longer than serve --max-time allows\n",
                o.peer);
    if (rc == PVN_PERF_INTERRUPTED)
        rc += pvn_stop_flag ? pvn_stop_flag : SIGTERM;
    rc = pvn_report_compare(&rep, rc);
    if (pvn_report_close(&rep, rc) && rc == PVN_PERF_OK)
        rc = PVN_PERF_FAILED;
    if (place.external)
        pvn_boot_close(&place.boot);
    return rc;
}

int main(int argc, char **argv)
{
    int rc;

    pvn_std_fds();
    rc = run_perf(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return rc;
    /* An earlier write may have failed, and errno may have changed since. */
    (void)!write(STDOUT_FILENO, "", 0);
    /* The reader of a closed pipe has read enough, so there is no message, as with other tools. */
    if (errno != EPIPE && pvn_stop_flag != SIGPIPE)
        fprintf(stderr, "pvn-perf: standard output cannot be written: %s\n", strerror(errno));
    return rc == PVN_PERF_OK ? PVN_PERF_FAILED : rc;
}
