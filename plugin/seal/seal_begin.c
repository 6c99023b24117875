/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "seal/seal_begin.h"

#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hints.h"
#include "base/log.h"
#include "base/param.h"
#include "seal/key.h"
#include "seal/seal.h"
#ifdef HAVE_OPENSSL
#include "seal/kernel_tls.h"
#include "seal/ssl_dl.h"
#endif

static struct pvn_key *key; /* written by begin and end only, while there is no connection */
/* The file's absolute name if it is read again, else "". Written likewise. */
static char looked_at[PATH_MAX];
static atomic_bool said_replaced;             /* the log has said that the file was replaced */
static struct pvn_err refusal = PVN_ERR_INIT; /* written likewise; code 0: none */
static _Atomic uint64_t warned_ns;            /* when the log last warned of it; 0: never */
/* Why the kernel seals nothing; NULL: it does. Written by begin and end only. */
#define NOT_REQUESTED "it is not requested"
static const char *kernel_refusal = NOT_REQUESTED;

static int load_library(const struct pvn_params *params, struct pvn_err *err)
{
#ifdef HAVE_OPENSSL
    return pvn_ssl_load(params->ssl_lib, err) ? 0 : err->code;
#else
    (void)params;
    pvn_err_set(
        err, -EOPNOTSUPP,
        "NCCL_PVRDMA_KEY_FILE is set, and this build of the plugin has no OpenSSL (configure "
        "--without-openssl): install a build that has it, or unset the variable at all ranks");
    pvn_err_set_fault(err, PVN_FAULT_USAGE);
    return err->code;
#endif
}

/* Tries what the first connection will need, because a library may be restricted (FIPS). */
static int check(const struct pvn_key *k, struct pvn_err *err)
{
    uint8_t any[16];
    int rc = pvn_seal_check(err);

    if (rc == 0)
        rc = pvn_key_derive(k, "check", 0, 0, any, sizeof(any), err);
    if (rc)
        pvn_err_set_fault(err, PVN_FAULT_USAGE);
    return rc;
}

/* Refuses two settings that contradict each other. */
static int check_settings(const struct pvn_params *params, struct pvn_err *err)
{
    if (!params->key_file[0] && params->encrypt != PVN_ENCRYPT_AUTO)
        pvn_err_set(
            err, -EINVAL,
            "NCCL_PVRDMA_ENCRYPT needs a key: set NCCL_PVRDMA_KEY_FILE to the job's key file "
            "(`pvn-perf --make-key FILE` makes one), or unset both");
    else if (params->encrypt == PVN_ENCRYPT_ALL && params->transport == PVN_TRANSPORT_RDMA)
        pvn_err_set(
            err, -EINVAL,
            "NCCL_PVRDMA_ENCRYPT=all excludes NCCL_PVRDMA_TRANSPORT=rdma: adapters cannot "
            "encrypt; set ENCRYPT to control (data over RDMA are in the clear), or TRANSPORT to "
            "auto");
    else
        return 0;
    pvn_err_set_fault(err, PVN_FAULT_USAGE);
    return err->code;
}

int pvn_seal_take_key(const struct pvn_params *params, struct pvn_key **out, struct pvn_err *err)
{
    struct pvn_key *k = NULL;
    int rc = check_settings(params, err);

    *out = NULL;
    if (rc || !params->key_file[0])
        return rc;
    rc = load_library(params, err);
    if (rc == 0)
        rc = pvn_key_read(params->key_file, &k, err);
    if (rc == 0)
        rc = check(k, err);
    if (rc)
        pvn_key_free(k);
    else
        *out = k;
    return rc;
}

static void look_at_kernel(const struct pvn_params *params)
{
#ifdef HAVE_OPENSSL
    static struct pvn_err why = PVN_ERR_INIT;

    if (params->kernel_tls)
        kernel_refusal = pvn_kernel_tls_check(&why) == 0 ? NULL : why.reason[0];
#else
    (void)params;
#endif
}

/* True for file systems whose calls wait for no network, as far as is known. The kernel's headers
 * have no number for ZFS, and older ones none for XFS. */
static bool is_local(const char *path)
{
    enum { XFS = 0x58465342, ZFS = 0x2fc12fc1 };
    static const unsigned local[] = {
        EXT4_SUPER_MAGIC, BTRFS_SUPER_MAGIC,     TMPFS_MAGIC, RAMFS_MAGIC, F2FS_SUPER_MAGIC,
        SQUASHFS_MAGIC,   OVERLAYFS_SUPER_MAGIC, XFS,         ZFS};
    struct statfs fs;

    if (statfs(path, &fs) != 0)
        return false;
    for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
        if ((unsigned)fs.f_type == local[i])
            return true;
    return false;
}

/* True if all directories of the name, and what they lead to, are local: the file may be a link
 * into memory whose own directory is on a network's file system. */
static bool is_all_local(const char *path)
{
    char part[PATH_MAX];

    for (const char *end = path; (end = strchr(end, '/')); end++) {
        snprintf(part, sizeof(part), "%.*s", (int)(end - path) + 1, path);
        if (!is_local(part))
            return false;
    }
    return is_local(path);
}

/* Keeps the file's name for pvn_seal_check_replaced, in a form that stays valid if the process
 * changes its directory. Does not follow links, because one may lead elsewhere later, as those of
 * Kubernetes do. */
static void note_file(const char *path)
{
    char here[PATH_MAX] = "";
    int n;

    if (path[0] != '/' && !getcwd(here, sizeof(here)))
        return;
    n = snprintf(looked_at, sizeof(looked_at), "%s%s%s", here, here[0] ? "/" : "", path);
    if (n < 0 || (size_t)n >= sizeof(looked_at) || !is_all_local(looked_at))
        looked_at[0] = '\0';
}

int pvn_seal_begin(const struct pvn_params *params, struct pvn_err *err)
{
    int rc;

    pvn_seal_end();
    rc = pvn_seal_take_key(params, &key, &refusal);
    if (key) {
        look_at_kernel(params);
        note_file(params->key_file);
    }
    if (rc == 0)
        return 0;
    pvn_err_add(&refusal,
                "this rank refuses every connection, since without the key its data would "
                "go unencrypted");
    *err = refusal;
    return rc;
}

void pvn_seal_end(void)
{
    pvn_key_free(key);
    key = NULL;
    looked_at[0] = '\0';
    atomic_store(&said_replaced, false);
    pvn_err_clear(&refusal);
    atomic_store(&warned_ns, 0);
    kernel_refusal = NOT_REQUESTED;
}

const struct pvn_err *pvn_seal_refusal(void)
{
    return refusal.code ? &refusal : NULL;
}

void pvn_seal_warn_refusal(void)
{
    uint64_t now = pvn_now_ns(), last = atomic_load(&warned_ns);

    if (!refusal.code || (last && now - last < PVN_LOG_FOLD_NS))
        return;
    atomic_store(&warned_ns, now);
    pvn_warn_err(&refusal);
}

const char *pvn_seal_kernel_refusal(void)
{
    return kernel_refusal;
}

const struct pvn_key *pvn_seal_key(void)
{
    return key;
}

bool pvn_seal_is_file_watched(void)
{
    return looked_at[0];
}

int pvn_seal_check_replaced(struct pvn_err *err)
{
    char then[PVN_KEY_TEXT], now[PVN_KEY_TEXT];
    struct pvn_err unused = PVN_ERR_INIT;
    struct pvn_key *k = NULL;
    int rc = 0;

    if (!looked_at[0] || pvn_key_read(looked_at, &k, &unused) != 0)
        return 0;
    if (!pvn_key_is_same(k, key)) {
        /* The name is last, because a long one is cut. */
        rc = pvn_err_set(
            err, -EKEYREVOKED,
            "NCCL_PVRDMA_KEY_FILE was replaced while the job ran (it had %s, and has %s): no "
            "connection is made with the old key any more; the file: %s",
            pvn_key_describe(key, then), pvn_key_describe(k, now), looked_at);
        pvn_err_set_fault(err, PVN_FAULT_USAGE);
        pvn_err_set_hint(err, PVN_HINT_REPLACED_KEY);
        if (!atomic_exchange(&said_replaced, true))
            pvn_warn_err(err);
    }
    pvn_key_free(k);
    return rc;
}
