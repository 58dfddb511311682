package differential;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Base64;
import java.util.OptionalLong;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.CreateDelegationTokenRequestData;
import org.apache.kafka.common.message.CreateDelegationTokenRequestData.CreatableRenewers;
import org.apache.kafka.common.message.ExpireDelegationTokenRequestData;
import org.apache.kafka.common.message.RenewDelegationTokenRequestData;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.controller.ControllerRequestContext;

/** The operations on delegation tokens. */
final class TokenOps {
    private final Cluster cluster;

    TokenOps(Cluster cluster) {
        this.cluster = cluster;
    }

    void create(JsonNode r, ObjectNode out) throws Exception {
        CreateDelegationTokenRequestData request = new CreateDelegationTokenRequestData()
            .setMaxLifetimeMs(r.path("max_lifetime_ms").asLong(-1));
        if (r.hasNonNull("owner_principal_name")) {
            request.setOwnerPrincipalName(r.get("owner_principal_name").asText())
                .setOwnerPrincipalType(r.path("owner_principal_type").asText());
        }
        for (JsonNode renewer : r.path("renewers")) {
            request.renewers().add(new CreatableRenewers().setPrincipalType(renewer.get("principal_type").asText())
                .setPrincipalName(renewer.get("principal_name").asText()));
        }
        var response = cluster.controller.createDelegationToken(context(ApiKeys.CREATE_DELEGATION_TOKEN, r), request)
            .get(60, TimeUnit.SECONDS);
        if (isRefused(response.errorCode(), out)) return;
        cluster.settle();
        out.putObject("response")
            .put("token_id", cluster.names.label(Uuid.fromString(response.tokenId())))
            .put("raw_token_id", response.tokenId())
            .put("hmac", Base64.getEncoder().encodeToString(response.hmac()))
            .put("owner", response.principalType() + ":" + response.principalName())
            .put("requester",
                response.tokenRequesterPrincipalType() + ":" + response.tokenRequesterPrincipalName())
            .put("issue_timestamp_ms", response.issueTimestampMs())
            .put("expiry_timestamp_ms", response.expiryTimestampMs())
            .put("max_timestamp_ms", response.maxTimestampMs());
    }

    void renew(JsonNode r, ObjectNode out) throws Exception {
        var response = cluster.controller.renewDelegationToken(context(ApiKeys.RENEW_DELEGATION_TOKEN, r),
            new RenewDelegationTokenRequestData().setHmac(hmac(r))
                .setRenewPeriodMs(r.path("renew_period_ms").asLong(-1))).get(60, TimeUnit.SECONDS);
        if (isRefused(response.errorCode(), out)) return;
        out.putObject("response").put("expiry_timestamp_ms", response.expiryTimestampMs());
    }

    void expire(JsonNode r, ObjectNode out) throws Exception {
        var response = cluster.controller.expireDelegationToken(context(ApiKeys.EXPIRE_DELEGATION_TOKEN, r),
            new ExpireDelegationTokenRequestData().setHmac(hmac(r))
                .setExpiryTimePeriodMs(r.path("expiry_time_period_ms").asLong(-1))).get(60, TimeUnit.SECONDS);
        if (isRefused(response.errorCode(), out)) return;
        out.putObject("response").put("expiry_timestamp_ms", response.expiryTimestampMs());
    }

    private byte[] hmac(JsonNode r) {
        return cluster.tokens.hmac(cluster.names.uuid(r.get("token").asText()).toString());
    }

    private static boolean isRefused(short code, ObjectNode out) {
        if (code != 0) out.set("error", Ops.error(Errors.forCode(code), null));
        return code != 0;
    }

    private static ControllerRequestContext context(ApiKeys key, JsonNode r) {
        KafkaPrincipal principal = SecurityUtils.parseKafkaPrincipal(r.path("principal").asText("User:ann"));
        return new ControllerRequestContext(new RequestHeaderData().setRequestApiKey(key.id)
            .setRequestApiVersion(key.latestVersion()), principal, OptionalLong.empty());
    }
}
