/* SPDX-License-Identifier: MIT
 * counter.cpp - add one to the number in counter.txt, however many copies run at once.
 *
 * g++ -std=c++11 counter.cpp $(pkg-config --cflags --libs holdfast) -o counter */
#include <holdfast.hpp>

#include <fstream>
#include <iostream>
#include <mutex>

int main()
{
    try {
        holdfast::client c; /* $HOLDFAST_URL, or a private server */
        holdfast::mutex m(c, "counter");
        std::unique_lock<holdfast::mutex> guard(m, std::chrono::seconds(10));
        if (!guard) {
            std::cerr << "busy\n";
            return 1;
        }
        int n = 0;
        std::ifstream("counter.txt") >> n; /* ours alone while guard exists */
        if (!(std::ofstream("counter.txt") << ++n << std::endl)) {
            std::cerr << "counter.txt cannot be written\n";
            return 1;
        }
        std::cout << n << ", under number " << m.fence() << '\n';
    } catch (const holdfast::error &e) {
        std::cerr << e.what() << '\n';
        return 1;
    }
}
