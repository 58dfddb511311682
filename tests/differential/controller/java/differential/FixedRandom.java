package differential;

import java.security.Provider;
import java.security.SecureRandomSpi;
import java.security.Security;
import java.util.Random;

/**
 * Makes the JVM's default SecureRandom, and so Kafka's random uuids (of topics), a fixed
 * sequence that starts again with every script. Only this way do Kafka's hash maps keyed by
 * topic id iterate in the same order on every run.
 */
public final class FixedRandom extends SecureRandomSpi {
    private static final Random RANDOM = new Random(0);

    static void install() {
        Provider provider = new Provider("FixedRandom", "1", "a fixed sequence") { };
        provider.put("SecureRandom.Fixed", FixedRandom.class.getName());
        Security.insertProviderAt(provider, 1);
    }

    static void restart(long seed) {
        RANDOM.setSeed(seed);
    }

    @Override
    protected void engineSetSeed(byte[] seed) {
    }

    @Override
    protected void engineNextBytes(byte[] bytes) {
        RANDOM.nextBytes(bytes);
    }

    @Override
    protected byte[] engineGenerateSeed(int count) {
        return new byte[count];
    }
}
