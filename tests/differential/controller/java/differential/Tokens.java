package differential;

import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.util.Map;
import java.util.Set;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.kafka.common.metadata.DelegationTokenRecord;
import org.apache.kafka.common.metadata.RemoveDelegationTokenRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.security.token.delegation.DelegationToken;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache;
import org.apache.kafka.metadata.DelegationTokenData;

/** The controller's cache of delegation tokens, filled from the log as DelegationTokenPublisher does, at once. */
final class Tokens {
    private static final String ALGORITHM = "HmacSHA512";

    final DelegationTokenCache cache = new DelegationTokenCache(Set.of());
    private final String secretKey;

    Tokens(String secretKey) {
        this.secretKey = secretKey;
    }

    /** Null: delegation tokens are disabled. */
    String secretKey() {
        return secretKey.isEmpty() ? null : secretKey;
    }

    void learn(ApiMessage record) {
        if (record instanceof DelegationTokenRecord token) {
            cache.updateCache(new DelegationToken(
                DelegationTokenData.fromRecord(token).tokenInformation(), hmac(token.tokenId())), Map.of());
        } else if (record instanceof RemoveDelegationTokenRecord token) {
            cache.removeCache(token.tokenId());
        }
    }

    byte[] hmac(String tokenId) {
        if (secretKey.isEmpty()) return new byte[1];
        try {
            Mac mac = Mac.getInstance(ALGORITHM);
            mac.init(new SecretKeySpec(secretKey.getBytes(StandardCharsets.UTF_8), ALGORITHM));
            return mac.doFinal(tokenId.getBytes(StandardCharsets.UTF_8));
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException(e);
        }
    }
}
