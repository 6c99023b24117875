/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "topo/tool/check/key_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin/base/param.h"
#include "plugin/seal/key.h"
#include "plugin/seal/seal_begin.h"
#include "topo/tool/base/tool.h"

#define VARIABLE "NCCL_PVRDMA_KEY_FILE"

/* Reads the key as the plugin would. 0, and its length and label in buf, or a negative errno with *err. */
static int read_key(const char *path, const char *ssl_lib, char buf[PVN_KEY_TEXT],
                    struct pvn_err *err)
{
    struct pvn_params params = *pvn_params_get();
    struct pvn_key *key = NULL;
    int rc;
    params.encrypt = PVN_ENCRYPT_AUTO;
    snprintf(params.key_file, sizeof(params.key_file), "%s", path);
    if (ssl_lib && ssl_lib[0])
        snprintf(params.ssl_lib, sizeof(params.ssl_lib), "%s", ssl_lib);
    rc = pvn_seal_take_key(&params, &key, err);
    if (rc == 0)
        pvn_key_describe(key, buf);
    pvn_key_free(key);
    return rc;
}

/* Only the reason, because the row or the fact names the variable already. */
static const char *reason_of(const struct pvn_err *err)
{
    const char *text = err->reason[0];
    return strncmp(text, VARIABLE ": ", strlen(VARIABLE) + 2) == 0 ? text + strlen(VARIABLE) + 2
                                                                   : text;
}

int tool_check_key(const struct tool *t, struct pvn_topo_checks *checks)
{
    const char *path = t->ignore_env ? NULL : getenv(VARIABLE);
    struct pvn_err err = PVN_ERR_INIT;
    char key[PVN_KEY_TEXT], text[PVN_ERR_REASON_LEN + 32];
    int rc;
    if (!path || !path[0])
        return 0;
    rc = read_key(path, getenv("NCCL_PVRDMA_SSL_LIB"), key, &err);
    if (rc == 0)
        snprintf(text, sizeof(text), "its owner alone may use it: %s", key);
    else
        snprintf(text, sizeof(text), "no connection is made: %s", reason_of(&err));
    /* The plugin's own sentence has the remedy. */
    return pvn_topo_checks_add(checks, "key", rc ? PVN_TOPO_LEVEL_FAIL : PVN_TOPO_LEVEL_OK,
                               VARIABLE, text, "");
}

const char *tool_key_text(const char *path, const char *ssl_lib, uid_t user, char *buf, size_t len)
{
    struct pvn_err err = PVN_ERR_INIT;
    char key[PVN_KEY_TEXT];
    uid_t own = geteuid();
    /* Read the file as that user, because for root it would belong to somebody else. */
    bool other = own == 0 && user != 0 && seteuid(user) == 0;
    int rc = read_key(path, ssl_lib, key, &err);
    if (other && seteuid(own) != 0)
        abort();
    if (rc == 0)
        snprintf(buf, len, "%s", key);
    else
        snprintf(buf, len, "cannot be used: %s", reason_of(&err));
    return buf;
}
