# SPDX-License-Identifier: MIT
# tls.sh - OpenSSL is loaded when a URL asks for TLS, and only then.
# shellcheck disable=SC2016 # evaluated by the inner shell

# A libssl that cannot be loaded is found before the system's.
break_openssl() {
    mkdir lib
    for v in 3 4; do
        : > "lib/libssl.so.$v"
    done
    LD_LIBRARY_PATH=$dir/lib
    export LD_LIBRARY_PATH
}

test_without_openssl_tls_is_refused_with_the_reason() {
    break_openssl
    expect_exit 71 holdfast --url rediss://127.0.0.1:1 run -w 5 a -- true
    expect_err 'TLS needs OpenSSL.*libssl.so.[0-9].*install'
    expect_exit 71 holdfast --url rediss://127.0.0.1:1 held a
}

test_without_openssl_everything_else_works() {
    break_openssl
    expect_exit 0 holdfast run a -- true
    expect_no_err
}

test_openssl_is_not_loaded_for_nothing() {
    expect_exit 0 holdfast run a -- sh -c 'cat /proc/$PPID/maps'
    expect_out 'libc'
    ! grep libssl out || fail "libssl is loaded"
}
