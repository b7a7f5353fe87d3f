/* SPDX-License-Identifier: MIT
 * openssl.h - the functions of OpenSSL that stream_tls.c uses, loaded when the first TLS
 * connection is made.
 *
 * To map and relocate OpenSSL takes longer than everything else that a program does before its
 * main(), and makes each fork() of it slower; most clients never speak TLS. With -DOPENSSL_LINKED
 * (make TLS=linked) it is linked as any other library: for a program that is linked statically.
 */
#ifndef NET_OPENSSL_H
#define NET_OPENSSL_H

#include <holdfast.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

/* Before the first call of any of them, in any thread. */
hf_err openssl_load(hf_error *reterr);

#ifndef OPENSSL_LINKED

#define OPENSSL_FUNCTIONS(X)                                                                       \
    X(ASN1_STRING_get0_data) X(ASN1_STRING_length) X(BIO_clear_flags) X(BIO_free)                  \
    X(BIO_get_data) X(BIO_get_new_index) X(BIO_meth_new) X(BIO_meth_set_ctrl)                      \
    X(BIO_meth_set_read) X(BIO_meth_set_write) X(BIO_new) X(BIO_set_data) X(BIO_set_flags)         \
    X(BIO_set_init) X(ERR_clear_error) X(ERR_peek_error) X(ERR_peek_last_error)                    \
    X(ERR_reason_error_string) X(GENERAL_NAMES_free) X(OPENSSL_init_ssl) X(OPENSSL_sk_num)         \
    X(OPENSSL_sk_value) X(SSL_CTX_ctrl) X(SSL_CTX_free) X(SSL_CTX_load_verify_dir)                 \
    X(SSL_CTX_load_verify_file) X(SSL_CTX_new) X(SSL_CTX_set_default_passwd_cb)                    \
    X(SSL_CTX_set_default_verify_paths) X(SSL_CTX_set_verify) X(SSL_CTX_use_PrivateKey_file)       \
    X(SSL_CTX_use_certificate_chain_file) X(SSL_connect) X(SSL_ctrl) X(SSL_free)                   \
    X(SSL_get0_param) X(SSL_get_error) X(SSL_get_ex_data) X(SSL_get_ex_data_X509_STORE_CTX_idx)    \
    X(SSL_get_verify_result) X(SSL_new) X(SSL_peek) X(SSL_read) X(SSL_set1_host) X(SSL_set_bio)    \
    X(SSL_set_ex_data) X(SSL_set_hostflags) X(SSL_write) X(TLS_client_method)                      \
    X(X509_NAME_get_text_by_NID) X(X509_STORE_CTX_get_current_cert)                                \
    X(X509_STORE_CTX_get_error_depth) X(X509_STORE_CTX_get_ex_data)                                \
    X(X509_VERIFY_PARAM_set1_ip_asc) X(X509_get_ext_d2i) X(X509_get_subject_name)                  \
    X(X509_verify_cert_error_string)

#define OPENSSL_MEMBER(name) __typeof__(name) *name;
extern struct openssl {
    OPENSSL_FUNCTIONS(OPENSSL_MEMBER)
} openssl;

#ifndef OPENSSL_OWN_NAMES
#define ASN1_STRING_get0_data openssl.ASN1_STRING_get0_data
#define ASN1_STRING_length openssl.ASN1_STRING_length
#define BIO_clear_flags openssl.BIO_clear_flags
#define BIO_free openssl.BIO_free
#define BIO_get_data openssl.BIO_get_data
#define BIO_get_new_index openssl.BIO_get_new_index
#define BIO_meth_new openssl.BIO_meth_new
#define BIO_meth_set_ctrl openssl.BIO_meth_set_ctrl
#define BIO_meth_set_read openssl.BIO_meth_set_read
#define BIO_meth_set_write openssl.BIO_meth_set_write
#define BIO_new openssl.BIO_new
#define BIO_set_data openssl.BIO_set_data
#define BIO_set_flags openssl.BIO_set_flags
#define BIO_set_init openssl.BIO_set_init
#define ERR_clear_error openssl.ERR_clear_error
#define ERR_peek_error openssl.ERR_peek_error
#define ERR_peek_last_error openssl.ERR_peek_last_error
#define ERR_reason_error_string openssl.ERR_reason_error_string
#define GENERAL_NAMES_free openssl.GENERAL_NAMES_free
#define OPENSSL_init_ssl openssl.OPENSSL_init_ssl
#define OPENSSL_sk_num openssl.OPENSSL_sk_num
#define OPENSSL_sk_value openssl.OPENSSL_sk_value
#define SSL_CTX_ctrl openssl.SSL_CTX_ctrl
#define SSL_CTX_free openssl.SSL_CTX_free
#define SSL_CTX_load_verify_dir openssl.SSL_CTX_load_verify_dir
#define SSL_CTX_load_verify_file openssl.SSL_CTX_load_verify_file
#define SSL_CTX_new openssl.SSL_CTX_new
#define SSL_CTX_set_default_passwd_cb openssl.SSL_CTX_set_default_passwd_cb
#define SSL_CTX_set_default_verify_paths openssl.SSL_CTX_set_default_verify_paths
#define SSL_CTX_set_verify openssl.SSL_CTX_set_verify
#define SSL_CTX_use_PrivateKey_file openssl.SSL_CTX_use_PrivateKey_file
#define SSL_CTX_use_certificate_chain_file openssl.SSL_CTX_use_certificate_chain_file
#define SSL_connect openssl.SSL_connect
#define SSL_ctrl openssl.SSL_ctrl
#define SSL_free openssl.SSL_free
#define SSL_get0_param openssl.SSL_get0_param
#define SSL_get_error openssl.SSL_get_error
#define SSL_get_ex_data openssl.SSL_get_ex_data
#define SSL_get_ex_data_X509_STORE_CTX_idx openssl.SSL_get_ex_data_X509_STORE_CTX_idx
#define SSL_get_verify_result openssl.SSL_get_verify_result
#define SSL_new openssl.SSL_new
#define SSL_peek openssl.SSL_peek
#define SSL_read openssl.SSL_read
#define SSL_set1_host openssl.SSL_set1_host
#define SSL_set_bio openssl.SSL_set_bio
#define SSL_set_ex_data openssl.SSL_set_ex_data
#define SSL_set_hostflags openssl.SSL_set_hostflags
#define SSL_write openssl.SSL_write
#define TLS_client_method openssl.TLS_client_method
#define X509_NAME_get_text_by_NID openssl.X509_NAME_get_text_by_NID
#define X509_STORE_CTX_get_current_cert openssl.X509_STORE_CTX_get_current_cert
#define X509_STORE_CTX_get_error_depth openssl.X509_STORE_CTX_get_error_depth
#define X509_STORE_CTX_get_ex_data openssl.X509_STORE_CTX_get_ex_data
#define X509_VERIFY_PARAM_set1_ip_asc openssl.X509_VERIFY_PARAM_set1_ip_asc
#define X509_get_ext_d2i openssl.X509_get_ext_d2i
#define X509_get_subject_name openssl.X509_get_subject_name
#define X509_verify_cert_error_string openssl.X509_verify_cert_error_string
#endif

#endif

#endif
